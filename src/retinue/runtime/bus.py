"""Steps and deltas for whoever watches. Nothing here is the truth: a watcher that falls behind
reads the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from retinue.core.events import LogEntry

if TYPE_CHECKING:
    from collections.abc import Iterator


class Step(msgspec.Struct, frozen=True):
    """One committed event. `seq` is its number in the log."""

    seq: int
    entry: LogEntry


class Delta(msgspec.Struct, frozen=True):
    """Text as it comes from a model: a preview of attempt `attempt`, never recorded."""

    run: str
    attempt: int
    text: str


@dataclass(eq=False)
class Watcher:
    """One subscription. `lost` counts what did not fit; the watcher then reads the log from where
    it was."""

    run: str
    queue: asyncio.Queue[Step | Delta]
    lost: int = 0

    def offer(self, item: Step | Delta) -> None:
        try:
            self.queue.put_nowait(item)
        except asyncio.QueueFull:
            self.lost += 1

    async def next(self, end: asyncio.Future[None]) -> Step | Delta | None:
        """The next thing that happens, or None once `end` is done and everything before it was
        taken."""
        if not self.queue.empty():
            return self.queue.get_nowait()
        if end.done():
            end.result()
            return None
        coming = asyncio.ensure_future(self.queue.get())
        try:
            await asyncio.wait((coming, end), return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return coming.result()
            end.result()
            return None
        finally:
            coming.cancel()

    def catch_up(self) -> None:
        """Forget what is queued: the log has it, and what did not fit."""
        self.lost = 0
        while not self.queue.empty():
            self.queue.get_nowait()


class Bus:
    def __init__(self) -> None:
        self._by_run: dict[str, set[Watcher]] = {}

    @contextmanager
    def watch(self, run: str = "", size: int = 10_000) -> Iterator[Watcher]:
        """Everything about one run, or about all for ""."""
        watcher = Watcher(run, asyncio.Queue(size))
        self._by_run.setdefault(run, set()).add(watcher)
        try:
            yield watcher
        finally:
            watchers = self._by_run[run]
            watchers.discard(watcher)
            if not watchers:
                del self._by_run[run]

    @property
    def busy(self) -> bool:
        return bool(self._by_run)

    def publish(self, first_seq: int, entries: Iterable[LogEntry]) -> None:
        for seq, entry in enumerate(entries, first_seq):
            for watcher in self._watchers(entry.run):
                watcher.offer(Step(seq, entry))

    def preview(self, run: str, attempt: int, text: str) -> None:
        for watcher in self._watchers(run):
            watcher.offer(Delta(run, attempt, text))

    def _watchers(self, run: str) -> list[Watcher]:
        return [*self._by_run.get(run, ()), *(self._by_run.get("", ()) if run else ())]
