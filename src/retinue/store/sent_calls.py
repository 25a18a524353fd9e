"""Which model calls have left: a note for each run, written before the first byte of a call, so
that after a crash only those calls are paid for that may have reached their provider.

The notes are kept in a file beside the store, one place of 64 bytes for each run that is at work,
so that the file does not grow with the calls. It is not synchronised: the page cache outlives the
process. After a power cut it is not believed, nor when it is missing, damaged, of another store, or
when a process that does not know it had the store in between: then every call that was under way
may have left."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from retinue.errors import StoreError

log = logging.getLogger("retinue")

TAIL = ".sent"
PLACE, STEP = 64, 64
"""The bytes of a note, of which none crosses a page; and by how many places the file grows."""
MOST = 64 << 20
"""A longer file has more notes than a machine has runs at work."""
MAGIC = b"RETsent1"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HEAD = struct.Struct("<8sQQQI16s")
_NOTE = struct.Struct("<40sQ")
_SUM = struct.Struct("<I")


class SentCalls:
    """A note says: of this run this attempt has left, and those before it may have. What is known
    holds for runs that a process has begun or taken up at epoch `_since` or later. Without a path
    it is kept in memory only. Models that work in threads note there."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._fd = -1
        self._epoch = self._since = self._n_places = 0
        self._last: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._free: list[int] = []
        self._lock = threading.Lock()

    def open(self) -> None:
        """Read what processes before this one have noted, and take it over with `keep`."""
        if not self._path:
            return
        self._last, self._places, self._free, self._n_places = {}, {}, [], 0
        self._epoch = self._since = 0
        fd = -1
        try:
            fd = os.open(self._path + TAIL, FLAGS, 0o600)
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_size > MOST:
                raise OSError("not a file of Retinue")
            data = os.pread(fd, found.st_size, 0)
            if data.strip(b"\0")[:8] not in (b"", MAGIC):
                raise OSError("not a file of Retinue")
            os.fchmod(fd, 0o600)
            self._read(data)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            log.warning(
                "%s%s cannot be used: %s. After a crash every call counts as sent.",
                self._path,
                TAIL,
                error,
            )
        else:
            self._fd = fd

    def keep(self, epoch: int, runs: Mapping[str, int]) -> None:
        """Go on as the process of this epoch, with these runs open, each of which was last in the
        hands of the process of its epoch. If one of them knew nothing of notes, those that there
        are may not be all."""
        is_whole = self._since and not any(self._epoch < of_run < epoch for of_run in runs.values())
        self._epoch = epoch
        if not is_whole:
            self._last, self._places, self._free, self._n_places = {}, {}, [], 0
            self._since = epoch
        for run in self._last.keys() - runs.keys():
            self.drop(run)
        if self._fd >= 0:
            with self._or_without():
                if not is_whole:
                    os.ftruncate(self._fd, 0)
                _write(self._fd, self._head(), 0)

    def is_unsent(self, run: str, epoch: int, attempt: int) -> bool:
        """Whether it is known that an attempt has not left; `epoch` is that of the process that has
        the run."""
        return epoch >= self._since and attempt > self._last.get(run, 0)

    def marker(self, run: str, attempt: int) -> Callable[[bool], None]:
        """To be called with True before the first byte of an attempt leaves; with False when it is
        known that nothing has left, or that nothing has to be paid for it."""
        before = self._last.get(run, 0)

        def mark(is_sent: bool) -> None:
            with self._lock:
                now, wanted = self._last.get(run, 0), attempt if is_sent else before
                if now <= attempt and now != wanted:
                    self._note(run, wanted)

        return mark

    def drop(self, run: str) -> None:
        """The end of the run is on record: its place may be used for another."""
        with self._lock:
            self._last.pop(run, None)
            place = self._places.pop(run, None)
            if place is not None:
                self._free.append(place)

    def trim(self) -> None:
        """Give places at the end that nobody uses back to the disk."""
        with self._lock, self._or_without():
            if self._fd >= 0:
                self._n_places = max(self._places.values(), default=-1) + 1
                self._free = [place for place in self._free if place < self._n_places]
                _write(self._fd, self._head(), 0)
                os.ftruncate(self._fd, PLACE * (1 + self._n_places))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _note(self, run: str, attempt: int) -> None:
        self._last[run] = attempt
        if self._fd < 0:
            return
        place = self._places.get(run)
        if place is None and self._free:
            place = self._places[run] = self._free.pop()
        note = _sealed(_NOTE.pack(run.encode(), attempt))
        try:
            if place is not None and os.pwrite(self._fd, note, PLACE * (1 + place)) == PLACE:
                return
        except OSError:
            pass  # tried once more, where it is known what to do then
        with self._or_without():
            if place is None:
                place = self._places[run] = self._grow()
            _write(self._fd, note, PLACE * (1 + place))

    def _grow(self) -> int:
        """New places at the end, written before the head speaks of them; returns one of them."""
        first = self._n_places
        _write(self._fd, bytes(PLACE * STEP), PLACE * (1 + first))
        self._n_places = first + STEP
        _write(self._fd, self._head(), 0)
        self._free.extend(range(first + STEP - 1, first, -1))
        return first

    @contextlib.contextmanager
    def _or_without(self) -> Iterator[None]:
        """When a note cannot be written, the file must not be believed: without it, everything may
        have left."""
        try:
            yield
        except OSError as error:
            fd, self._fd = self._fd, -1
            log.warning(
                "%s%s cannot be written: %s. It is no longer used.", self._path, TAIL, error
            )
            try:
                os.ftruncate(fd, 0)
            except OSError:
                raise StoreError(
                    f"{self._path}{TAIL} can be neither written nor emptied ({error}), so "
                    "no more calls are sent: they could not be accounted for. Recorded "
                    "work is safe. Check the disk."
                ) from error
            finally:
                os.close(fd)

    def _head(self) -> bytes:
        inode = os.stat(self._path).st_ino
        return _sealed(_HEAD.pack(MAGIC, self._epoch, self._since, inode, self._n_places, _boot()))

    def _read(self, data: bytes) -> None:
        """What is in the file, if it is whole, of this store, and of this start of the machine."""
        head = _opened(_HEAD, data[:PLACE])
        if head is None:
            return
        _, epoch, since, inode, n_places, boot = head
        is_ours = any(boot) and (inode, boot) == (os.stat(self._path).st_ino, _boot())
        if not is_ours or len(data) < PLACE * (1 + n_places):
            return
        notes = [_opened(_NOTE, data[PLACE * n : PLACE * (n + 1)]) for n in range(1, n_places + 1)]
        found = [(note[0].rstrip(b"\0").decode(), note[1]) for note in notes if note is not None]
        if len(found) < n_places:
            return
        for place, (run, attempt) in enumerate(found):
            if not run or attempt < self._last.get(run, 0):
                self._free.append(place)
            else:
                self._places[run], self._last[run] = place, attempt
        self._epoch, self._since, self._n_places = epoch, since, n_places


def _sealed(fields: bytes) -> bytes:
    return (fields + _SUM.pack(zlib.crc32(fields))).ljust(PLACE, b"\0")


def _opened(form: struct.Struct, piece: bytes) -> tuple[Any, ...] | None:
    """What is in a place, None if it is damaged. An empty one has an empty note in it."""
    fields = piece[: form.size]
    if any(piece) and _sealed(fields) != piece:
        return None
    return form.unpack(fields) if len(fields) == form.size else None


def _write(fd: int, data: bytes, at: int) -> None:
    if os.pwrite(fd, data, at) != len(data):
        raise OSError("it was written only in part")


def _boot() -> bytes:
    """Which start of the machine this is; zeros where that is not known, and then no file is
    believed."""
    try:
        with open(BOOT_ID, "rb") as file:
            return bytes.fromhex(file.read(64).replace(b"-", b"").decode().strip()).ljust(
                16, b"\0"
            )[:16]
    except (OSError, ValueError):
        return bytes(16)
