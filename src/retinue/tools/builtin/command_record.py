"""The record of one command on disk: its start, its output, its end. It outlives the runtime, so
that a call which was cut off by a restart can be answered with what really happened."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from retinue.errors import Refused
from retinue.formats.fair_cut import whole_characters
from retinue.formats.safe_text import several_lines
from retinue.sandbox import folder_operations as folders
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.base import CommandExit
from retinue.sandbox.open_beneath import sync_folder
from retinue.sandbox.regular_file import open_regular, read_small

T = TypeVar("T")

KEPT = 16 << 20
HEAD = TAIL = 32 << 10

OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n|$)")


class CommandStart(msgspec.Struct, frozen=True, kw_only=True):
    """What was started, by which run, for which call."""

    run: str
    command: str
    at: float
    tag: str
    background: bool = False


class CommandEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended, as the runtime saw it."""

    code: int | None
    why: str
    seconds: float
    n_bytes: int
    notes: tuple[str, ...] = ()


class CommandRecord:
    """`write` keeps the first 16 MiB in a file and the last 32 KiB in memory, and counts the
    rest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.n_bytes = 0
        self._tail = bytearray()
        self._file = -1

    @property
    def id(self) -> str:
        return self.folder.name

    def create(self, start: CommandStart) -> None:
        """Durable before anything is started: where there is no folder, nothing was. (Blocks; not
        for the loop.)"""
        try:
            self.folder.mkdir(mode=0o700)
        except FileExistsError:
            raise Refused(
                "call", "This call was already started. It is not started twice."
            ) from None
        write_file(self.folder / "start.json", msgspec.json.encode(start), durable=False)
        self._file = os.open(
            self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        sync_folder(self.folder.parent)

    def write(self, data: bytes) -> None:
        room = KEPT - self.n_bytes
        if room > 0 and self._file >= 0:
            try:
                os.write(self._file, data[:room])
            except OSError:  # the disk is full: the command continues, the tail is still kept
                self._drop_file()
        self.n_bytes += len(data)
        self._tail += data[-TAIL:]
        if len(self._tail) > 4 * TAIL:
            del self._tail[:-TAIL]

    def finish(self, ended: CommandExit) -> CommandEnd:
        end = CommandEnd(
            code=ended.code,
            why=ended.why,
            seconds=round(ended.seconds, 3),
            n_bytes=self.n_bytes,
            notes=ended.notes,
        )
        self._drop_file()
        with contextlib.suppress(OSError):
            if self.n_bytes > KEPT:
                write_file(self.folder / "tail", bytes(self._tail[-TAIL:]), durable=False)
            write_file(self.folder / "end.json", msgspec.json.encode(end))
        return end

    def discard(self) -> None:
        """It was not started after all."""
        self._drop_file()
        folders.remove(self.folder)

    def _drop_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def start(self) -> CommandStart | None:
        return _read(self.folder / "start.json", CommandStart)

    @property
    def end(self) -> CommandEnd | None:
        return _read(self.folder / "end.json", CommandEnd)

    def total(self) -> int:
        if self.n_bytes:
            return self.n_bytes
        end = self.end
        return end.n_bytes if end is not None else self.kept()

    def kept(self) -> int:
        try:
            return (self.folder / "output").stat().st_size
        except OSError:
            return 0

    def read(self, offset: int, limit: int) -> bytes:
        with contextlib.suppress(OSError), open(open_regular(self.folder / "output"), "rb") as file:
            file.seek(offset)
            return file.read(limit)
        return b""

    def last(self) -> bytes:
        """The last 32 KiB of everything, also of what was not kept."""
        if self._tail:
            return bytes(self._tail[-TAIL:])
        with contextlib.suppress(OSError):
            return read_small(self.folder / "tail")
        return self.read(max(0, self.kept() - TAIL), TAIL)

    def shown(self) -> str:
        """Head and tail for the model, with a note at the cut."""
        total, n_saved = self.total(), self.kept()
        if total <= HEAD + TAIL:
            whole = self.read(0, total)
            return plain(whole if len(whole) == total else self.last())
        n_cut = total - HEAD - TAIL
        rest = f"continue with shell_output, id {self.id!r}, offset {HEAD}"
        if n_saved < total:
            rest += f"; only the first {n_saved} bytes were saved"
        head, tail = plain(trim(self.read(0, HEAD))), plain(trim(self.last()))
        return f"{head}\n[truncated: {n_cut} of {total} bytes hidden; {rest}]\n{tail}"


def plain(data: bytes) -> str:
    """What a person would have read on a terminal: no escapes, no lines that were overwritten,
    nothing unseen."""
    text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = OVERWRITTEN.sub("", text).replace("\r", "")
    return several_lines(text)


def trim(data: bytes) -> bytes:
    """Without the halves of characters at both ends."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return whole_characters(data[start:])


def owners(parent: Path) -> dict[str, str]:
    """The records that are there, by their ids: whose each is."""
    out = {}
    with contextlib.suppress(OSError):
        for folder in parent.iterdir():
            start = CommandRecord(folder).start
            if start is not None:
                out[folder.name] = start.run
    return out


def discard_all(parent: Path, ids: Iterable[str]) -> None:
    for id in ids:
        folders.remove(parent / id)


def forget_old(parent: Path, seconds: float) -> None:
    """Remove records that no one will ask for."""
    with contextlib.suppress(OSError):
        for folder in parent.iterdir():
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > seconds:
                    folders.remove(folder)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(read_small(path), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
