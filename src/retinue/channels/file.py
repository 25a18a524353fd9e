"""Announcements in a file: one JSON object per line, written to disk before the delivery counts,
each key once even with several writers.

What is in the file is the record: a key is taken when a whole line with it is there. A line that a
crash tore is not whole, stays where it is, and the next one starts on a new line."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from retinue.channels.recent_keys import RecentKeys
from retinue.core.values import Delivery
from retinue.errors import RetinueError
from retinue.sandbox.open_beneath import make_real, sync_folder

KEPT = 100_000
FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
LOCK_SECONDS = 30.0
POLL_SECONDS = 0.005


class _Line(msgspec.Struct):
    key: str


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


class JsonLines:
    """A file that announcements are appended to; it and the folders above it are made, for their
    owner alone. Links on the way count as they are when this is made: one that a run puts there
    later is not followed.

    The keys are read from the file at its first use, and again whatever others have appended since;
    the newest 100,000 are kept in memory, so a key that is further back than that would be written
    again. The work is done in a thread of its own: one append at a time, and a full or slow disk
    holds up no one else."""

    def __init__(self, path: str | Path) -> None:
        self._path = os.path.realpath(path)
        self._seen = RecentKeys(KEPT)
        self._file = (0, 0)
        self._read = 0
        self._thread = ThreadPoolExecutor(1, "retinue lines")

    async def send(self, delivery: Delivery) -> None:
        origin = delivery.origin
        line = _encode(
            {
                "key": delivery.key,
                "run": delivery.run,
                "channel": origin.channel,
                "user": origin.user,
                "thread": origin.thread,
                "text": delivery.text,
                **({"note": delivery.note} if delivery.note else {}),
                "at": delivery.next_at,
            }
        )
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._append, delivery.key, line + b"\n")
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise RetinueError(
                f"Cannot append to {self._path} ({why}). Its content was not changed. "
                "Check its folder, its file permissions and the free disk space."
            ) from error

    def _append(self, key: str, line: bytes) -> None:
        fd = self._locked()
        try:
            self._catch_up(fd)
            if key in self._seen:
                # Its writer may have been killed before it was on the disk.
                os.fsync(fd)
                return
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line
            _write(fd, line, size)
            self._seen.add(key)
            self._read = size + len(line)
        finally:
            os.close(fd)

    def _locked(self) -> int:
        """The file that bears the name, locked: another may have been put in its place while we
        waited."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            fd = self._opened()
            try:
                while not _lock(fd):
                    if time.monotonic() > deadline:
                        raise RetinueError(
                            f"{self._path} is locked by another process. It was not changed."
                        )
                    time.sleep(POLL_SECONDS)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(fd), os.lstat(self._path)):
                        return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def _opened(self) -> int:
        folder, name = os.path.split(self._path)
        above = make_real(folder, 0o700, durable=True)
        try:
            fd = os.open(name, FLAGS, 0o600, dir_fd=above)
        finally:
            os.close(above)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise RetinueError(f"{self._path} is not a regular file. Name another one.")
        return fd

    def _catch_up(self, fd: int) -> None:
        """Learn the keys of the lines that are new to us."""
        now = os.fstat(fd)
        if self._file != (now.st_dev, now.st_ino):
            # Its maker may have been killed before its name was on the disk.
            sync_folder(os.path.dirname(self._path))
            self._file, self._read = (now.st_dev, now.st_ino), 0
        elif now.st_size < self._read:
            self._read = 0
        if now.st_size == self._read:
            return
        with open(fd, "rb", closefd=False) as file:
            file.seek(self._read)
            for line in file:
                # The beginning of an object is never an object: what can be read is whole, its
                # newline or not.
                with contextlib.suppress(msgspec.DecodeError):
                    self._seen.add(_decode(line).key)
                self._read += len(line)


def _write(fd: int, line: bytes, size: int) -> None:
    """All of it, on the disk; or nothing of it, as far as that can be had."""
    rest = memoryview(line)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    except OSError:
        # After an fsync that failed, the next one may succeed without the bytes being there: they
        # have to go.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise


def _lock(fd: int) -> bool:
    """Not the blocking call: a thread that waits in it for a process that is stopped could never be
    ended."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
