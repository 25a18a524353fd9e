"""Time limits for many calls with one timer: each call sets its deadline, and a periodic check ends
late ones."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Watched(Protocol):
    """A call that has time only until then."""

    until: float

    def expire(self) -> None: ...


class Watchdog:
    """Ends those whose time is over. It looks every `tick` seconds, as long as there is anyone to
    watch.

    Timers run before the tasks that a blocked loop has left waiting: right after one, those who
    have been answered meanwhile look as if they were late. They get one more tick."""

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._was_late = False
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, until: float, why: str) -> Limit:
        """`with` it: the current task is cancelled when `until`, which may be moved, has passed."""
        return Limit(self, until, why)

    def watch(self, one: Watched) -> None:
        self._watched.add(one)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick, self._sweep)

    def leave(self, one: Watched) -> None:
        self._watched.discard(one)

    def _sweep(self) -> None:
        loop, timer = asyncio.get_running_loop(), self._timer
        now = loop.time()
        is_late = timer is not None and now - timer.when() > self._tick
        self._was_late = is_late and not self._was_late
        self._timer = loop.call_later(self._tick, self._sweep) if self._watched else None
        if self._was_late:
            return
        for one in [w for w in self._watched if w.until <= now]:
            self._watched.discard(one)
            one.expire()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Limit:
    """One call's time. When it is over the call sees `TimeoutError` with the last reason."""

    __slots__ = ("_cancels", "_dog", "_expired", "_task", "until", "why")

    def __init__(self, dog: Watchdog, until: float, why: str) -> None:
        self._dog, self.until, self.why = dog, until, why
        self._expired = False
        self._cancels = 0
        self._task: asyncio.Task[object] | None = None

    def __enter__(self) -> Limit:
        self._task = task = asyncio.current_task()
        self._cancels = task.cancelling() if task is not None else 0
        self._dog.watch(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._dog.leave(self)
        if self._expired and self._task is not None:
            n_cancels = self._task.uncancel()
            if isinstance(error, asyncio.CancelledError) and n_cancels <= self._cancels:
                raise TimeoutError(self.why) from error

    def expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()
