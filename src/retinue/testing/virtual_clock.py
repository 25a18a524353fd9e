"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing is ready.

A day of waiting takes milliseconds, and the same program takes the same steps each time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _NoWaiting(selectors.BaseSelector):
    """A selector that never sleeps: what it would have slept is added to the virtual time
    instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            # Nothing is scheduled: only another thread could wake the loop, or no one ever will.
            return self._real.select(self._loop.patience)
        if timeout > 0:
            self._loop.elapse(timeout)
        return self._real.select(0)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Any:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on virtual time. What would run in a thread runs immediately, so that nothing
    is left to chance."""

    def __init__(self, patience: float = 5.0) -> None:
        self._virtual = 0.0
        self.patience = patience
        super().__init__(_NoWaiting(self))

    def time(self) -> float:
        return self._virtual

    def elapse(self, seconds: float) -> None:
        self._virtual += seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class VirtualClock:
    """The runtime's clock on a virtual loop. Names are counted, not drawn."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, start_ms: int = 1_800_000_000_000
    ) -> None:
        self._loop = loop
        self._start = start_ms
        self._named = 0

    def now(self) -> int:
        loop = self._loop or asyncio.get_running_loop()
        return self._start + round(loop.time() * 1000)

    def chance(self) -> str:
        self._named += 1
        return f"{self._named:032x}"


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a fresh virtual loop, like `asyncio.run`."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
