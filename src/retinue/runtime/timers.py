"""One timer for all runs: a run's row says when to wake it, and it has at most one entry."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

SPARE = 32


class Timers:
    """A run whose time moves later keeps its earlier entry, which is put back when it comes up: few
    pushes. Entries of runs that have ended are thrown out when they are the greater part."""

    def __init__(
        self,
        now: Callable[[], int],
        deadline: Callable[[str], int | None],
        fire: Callable[[str], None],
    ) -> None:
        self._now, self._wanted, self._fire = now, deadline, fire
        self._heap: list[tuple[int, str]] = []
        self._entry: dict[str, int] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._armed = 0

    def set(self, id: str, at: int | None) -> None:
        if at is None:
            return
        entry = self._entry.get(id)
        if entry is None or at < entry:
            self._entry[id] = at
            heapq.heappush(self._heap, (at, id))
            if self._handle is None or at < self._armed:
                self._arm()

    def drop(self, id: str) -> None:
        """The run has ended: nothing is kept for it."""
        self._entry.pop(id, None)
        if len(self._heap) > 2 * len(self._entry) + SPARE:
            self._heap = [(at, id) for id, at in self._entry.items()]
            heapq.heapify(self._heap)
            self._arm()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap:
            self._armed = self._heap[0][0]
            delay = max(0, self._armed - self._now()) / 1000
            self._handle = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._handle = None
        now = self._now()
        while self._heap and self._heap[0][0] <= now:
            at, id = heapq.heappop(self._heap)
            if self._entry.get(id) != at:
                continue
            del self._entry[id]
            deadline = self._wanted(id)
            if deadline is None:
                continue
            if deadline <= now:
                self._fire(id)
            else:
                self._entry[id] = deadline
                heapq.heappush(self._heap, (deadline, id))
        self._arm()

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._heap.clear()
        self._entry.clear()
