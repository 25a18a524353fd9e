"""Identifies the other end of a connection on this machine, as far as the system allows."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
import sys

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
MAPPED = b"\0" * 10 + b"\xff" * 2
"""Before an address of four bytes in one of sixteen."""
USER = 7
"""The column with the user of a socket."""


def is_ours(line: socket.socket) -> bool:
    """Whether the other end is a process of our own user, as far as the system tells."""
    return not hasattr(socket, "SO_PEERCRED") or _credentials(line)[1] == os.getuid()


def is_other_user(client: tuple[str, int] | None, server: tuple[str, int] | None) -> bool:
    """Whether a connection over TCP comes from a process of this machine that belongs to another
    user. The system knows the client's end of it by the same two addresses."""
    if not client or not server:
        return False
    for table, width in zip(TABLES, (4, 16), strict=True):
        with contextlib.suppress(OSError, ValueError):
            ends = [_as_listed(*end, width) for end in (client, server)]
            with open(table, encoding="ascii") as file:
                for line in file:
                    words = line.split()
                    if words[1:3] == ends:
                        return int(words[USER]) not in (os.getuid(), 0)
    return False


def _as_listed(address: str, port: int, width: int) -> str:
    """An address as the table with addresses of `width` bytes has it. Raises `ValueError`."""
    packed = ipaddress.ip_address(address).packed
    packed = MAPPED + packed if len(packed) < width else packed
    if len(packed) != width:
        raise ValueError(f"{address} is not in this table")
    words = [packed[n : n + 4] for n in range(0, width, 4)]
    digits = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{digits}:{port:04X}"


def peer(line: socket.socket) -> int:
    """The process at the other end, 0 where the system does not tell."""
    return _credentials(line)[0] if hasattr(socket, "SO_PEERCRED") else 0


def key_in(path: str) -> str:
    """The token of the host; "" when there is no such file, and then the host says so."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(1024).strip()
    except OSError:
        return ""


def _credentials(line: socket.socket) -> tuple[int, int, int]:
    packed = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, user, group = struct.unpack("3i", packed)
    return pid, user, group
