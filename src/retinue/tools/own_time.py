"""The time limit of a tool: its own work counts, waiting for children and people does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
_clock: ContextVar[OwnTime | None] = ContextVar("own_time", default=None)


class OwnTime:
    """The time of one call. It is paused while the function awaits a step."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit, self._n_waiting, self._left = limit, 0, 0.0

    @contextmanager
    def resting(self) -> Iterator[None]:
        loop, self._n_waiting = asyncio.get_running_loop(), self._n_waiting + 1
        when = self._limit.when()
        if self._n_waiting == 1 and when is not None:
            self._left = when - loop.time()
            self._limit.reschedule(None)
        try:
            yield
        finally:
            self._n_waiting -= 1
            if not self._n_waiting:
                with suppress(RuntimeError):  # the call is over
                    self._limit.reschedule(loop.time() + self._left)


@contextmanager
def resting() -> Iterator[None]:
    """The call that this code belongs to waits for something that is not its own work."""
    clock = _clock.get()
    if clock is None:
        yield
        return
    with clock.resting():
        yield


async def within(seconds: float, work: Awaitable[T]) -> T | None:
    """What comes of the work, or None if it takes longer."""
    try:
        async with asyncio.timeout(seconds) as limit:
            token = _clock.set(OwnTime(limit))
            try:
                return await work
            finally:
                _clock.reset(token)
    except TimeoutError:
        if limit.expired():
            return None
        raise
