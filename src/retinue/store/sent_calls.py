"""Notes which model calls were sent, before their first byte, so that after a crash only calls that
may have reached their provider are paid for.

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
import threading
from collections.abc import Callable, Iterator, Mapping

from retinue.errors import StoreError
from retinue.store.sent_call_notes import (
    HEAD,
    MAGIC,
    NOTE,
    PLACE,
    NotesHead,
    boot_id,
    opened,
    sealed,
    write_at,
)

log = logging.getLogger("retinue.store")

TAIL = ".sent"
STEP = 64
"""By how many places the file grows."""
MOST = 64 << 20
"""A longer file has more notes than a machine has runs at work."""
FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SentCalls:
    """A note says: of this run this attempt has left, and those before it may have. What is known
    holds for runs that a process has begun or resumed at epoch `_since` or later. Without a path it
    is kept in memory only. Models that work in threads note there. `identity` is the number of the
    store; that of a file is its inode."""

    def __init__(self, path: str = "", identity: int | None = None) -> None:
        self._path = path
        self._identity = identity
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
        self._last = {}
        self._places = {}
        self._free = []
        self._n_places = 0
        self._epoch = self._since = 0
        fd = -1
        try:
            fd = os.open(self._path + TAIL, FLAGS, 0o600)
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1 or info.st_size > MOST:
                raise OSError("not a file of Retinue")
            data = os.pread(fd, info.st_size, 0)
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
        """Continue as the process of this epoch, with these runs open, each of which was last in
        the hands of the process of its epoch. If one of them knew nothing of notes, those that
        there are may not be all."""
        is_whole = self._since and not any(self._epoch < of_run < epoch for of_run in runs.values())
        self._epoch = epoch
        if not is_whole:
            self._last = {}
            self._places = {}
            self._free = []
            self._n_places = 0
            self._since = epoch
        for run in self._last.keys() - runs.keys():
            self.drop(run)
        if self._fd >= 0:
            with self._or_without():
                if not is_whole:
                    os.ftruncate(self._fd, 0)
                write_at(self._fd, self._head(), 0)

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
                now, target = self._last.get(run, 0), attempt if is_sent else before
                if now <= attempt and now != target:
                    self._note(run, target)

        return mark

    def drop(self, run: str) -> None:
        """The end of the run is on record: its place may be used for another."""
        with self._lock:
            self._last.pop(run, None)
            place = self._places.pop(run, None)
            if place is not None:
                self._free.append(place)

    def trim(self) -> None:
        """Give places at the end that no one uses back to the disk."""
        with self._lock, self._or_without():
            if self._fd >= 0:
                self._n_places = max(self._places.values(), default=-1) + 1
                self._free = [place for place in self._free if place < self._n_places]
                write_at(self._fd, self._head(), 0)
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
        note = sealed(NOTE.pack(run.encode(), attempt))
        try:
            if place is not None and os.pwrite(self._fd, note, PLACE * (1 + place)) == PLACE:
                return
        except OSError:
            pass  # tried once more, where it is known what to do then
        with self._or_without():
            if place is None:
                place = self._places[run] = self._grow()
            write_at(self._fd, note, PLACE * (1 + place))

    def _grow(self) -> int:
        """New places at the end, written before the head speaks of them; returns one of them."""
        first = self._n_places
        write_at(self._fd, bytes(PLACE * STEP), PLACE * (1 + first))
        self._n_places = first + STEP
        write_at(self._fd, self._head(), 0)
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
        store = self._store()
        return sealed(HEAD.pack(MAGIC, self._epoch, self._since, store, self._n_places, boot_id()))

    def _store(self) -> int:
        return os.stat(self._path).st_ino if self._identity is None else self._identity

    def _read(self, data: bytes) -> None:
        """What is in the file, if it is whole, of this store, and of this start of the machine."""
        fields = opened(HEAD, data[:PLACE])
        if fields is None:
            return
        head = NotesHead(*fields)
        here = (self._store(), boot_id())
        is_ours = any(head.boot) and (head.store, head.boot) == here
        if not is_ours or len(data) < PLACE * (1 + head.n_places):
            return
        places = range(1, head.n_places + 1)
        notes = [opened(NOTE, data[PLACE * n : PLACE * (n + 1)]) for n in places]
        entries = [(note[0].rstrip(b"\0").decode(), note[1]) for note in notes if note is not None]
        if len(entries) < head.n_places:
            return
        for place, (run, attempt) in enumerate(entries):
            if not run or attempt < self._last.get(run, 0):
                self._free.append(place)
            else:
                self._places[run], self._last[run] = place, attempt
        self._epoch, self._since, self._n_places = head.epoch, head.since, head.n_places
