"""Publishes steps and deltas to watchers: the newest are kept once for all of them, and a watcher
is only a position. Nothing here is the truth: a watcher that falls behind reads the log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from retinue.core.events import LogEntry
from retinue.runtime.text_pieces import OpenReplies, TextPiece

if TYPE_CHECKING:
    from collections.abc import Iterator


class Step(msgspec.Struct, frozen=True):
    """One committed event. `seq` is its number in the log."""

    seq: int
    entry: LogEntry


KEPT = 10_000
"""So many items are kept for watchers that are slower than others."""


@dataclass(eq=False)
class Watcher:
    """One subscription: the number of the next item that it has not taken."""

    bus: Bus
    position: int

    @property
    def is_lost(self) -> bool:
        """Whether something is gone that it has not taken; it is in the log, if it is a step."""
        return self.position < self.bus.first

    @property
    def is_empty(self) -> bool:
        return self.position >= self.bus.end

    async def next(self, end: asyncio.Future[None]) -> Step | TextPiece | None:
        """The next thing that happens; None when the watcher is lost, or once `end` is done and
        everything before it was taken."""
        while not self.is_lost:
            if not self.is_empty:
                self.position += 1
                return self.bus.item(self.position - 1)
            if end.done():
                end.result()
                return None
            await asyncio.wait((self.bus.news(), end), return_when=asyncio.FIRST_COMPLETED)
        return None

    async def change(self, end: asyncio.Future[None] | None = None) -> None:
        """Until there is something that was not taken, or `end` is done."""
        while self.is_empty and not (end is not None and end.done()):
            awaited = (self.bus.news(),) if end is None else (self.bus.news(), end)
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)

    def catch_up(self) -> None:
        """Skip what is kept here: the log has it, and also what is no longer kept."""
        self.position = self.bus.end


class Bus:
    """What was published last. `end` is the number of what comes next, `first` that of the oldest
    item that is kept."""

    def __init__(self, n_items: int = KEPT) -> None:
        self._items: deque[Step | TextPiece] = deque(maxlen=n_items)
        self._n_watchers = 0
        self._news: asyncio.Future[None] | None = None
        self.end = 0
        self.open_replies = OpenReplies()

    @contextmanager
    def watch(self) -> Iterator[Watcher]:
        """Everything that happens from now on."""
        self._n_watchers += 1
        try:
            yield Watcher(self, self.end)
        finally:
            self._n_watchers -= 1
            if not self._n_watchers:
                self._items.clear()

    @property
    def first(self) -> int:
        return self.end - len(self._items)

    @property
    def busy(self) -> bool:
        return self._n_watchers > 0

    def item(self, position: int) -> Step | TextPiece:
        return self._items[position - self.first]

    def news(self) -> asyncio.Future[None]:
        """Done with the next thing that is published: one for all who wait."""
        if self._news is None or self._news.done():
            self._news = asyncio.get_running_loop().create_future()
        return self._news

    def publish(self, first_seq: int, entries: Iterable[LogEntry]) -> None:
        for seq, entry in enumerate(entries, first_seq):
            self._add(Step(seq, entry))

    def preview(self, run: str, attempt: int, text: str) -> None:
        """Kept also without watchers: one that comes later begins with it."""
        self._add(self.open_replies.add(run, attempt, text))

    def _add(self, item: Step | TextPiece) -> None:
        if not self._n_watchers:
            return
        self._items.append(item)
        self.end += 1
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
