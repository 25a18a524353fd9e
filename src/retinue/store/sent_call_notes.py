"""The file format for notes of sent model calls: a header, then one note with a checksum for each
run."""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any, NamedTuple

PLACE = 64
"""The bytes of a note, of which none crosses a page."""
MAGIC = b"RETsent1"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
HEAD = struct.Struct("<8sQQQI16s")
NOTE = struct.Struct("<40sQ")
_SUM = struct.Struct("<I")


class NotesHead(NamedTuple):
    """The fields of `HEAD`."""

    magic: bytes
    epoch: int
    since: int
    store: int
    n_places: int
    boot: bytes


def sealed(fields: bytes) -> bytes:
    return (fields + _SUM.pack(zlib.crc32(fields))).ljust(PLACE, b"\0")


def opened(form: struct.Struct, piece: bytes) -> tuple[Any, ...] | None:
    """What is in a place, None if it is damaged. An empty one has an empty note in it."""
    fields = piece[: form.size]
    if any(piece) and sealed(fields) != piece:
        return None
    return form.unpack(fields) if len(fields) == form.size else None


def write_at(fd: int, data: bytes, at: int) -> None:
    if os.pwrite(fd, data, at) != len(data):
        raise OSError("it was written only in part")


def boot_id() -> bytes:
    """Which start of the machine this is; zeros where that is not known, and then no file is
    believed."""
    try:
        with open(BOOT_ID, "rb") as file:
            return bytes.fromhex(file.read(64).replace(b"-", b"").decode().strip()).ljust(
                16, b"\0"
            )[:16]
    except (OSError, ValueError):
        return bytes(16)
