"""Who waits for the end of a run: futures by run, forgotten as soon as they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator


class EndWaiters:
    def __init__(self) -> None:
        self._by_run: dict[str, set[asyncio.Future[None]]] = {}

    def __iter__(self) -> Iterator[asyncio.Future[None]]:
        for waiting in self._by_run.values():
            yield from waiting

    def wait(self, id: str) -> asyncio.Future[None]:
        """Resolved when the run is said to have ended."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._by_run.setdefault(id, set()).add(future)
        future.add_done_callback(lambda done: self._forget(id, done))
        return future

    def _forget(self, id: str, future: asyncio.Future[None]) -> None:
        waiting = self._by_run.get(id)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._by_run[id]

    def tell(self, id: str, error: Exception | None = None) -> None:
        """The run has ended, or will not be heard of any more."""
        for waiter in self._by_run.pop(id, ()):
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
