"""Futures that wait for the end of a run, by run. One that was given up is forgotten when the next
one comes, or with the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator


class EndWaiters:
    def __init__(self) -> None:
        self._by_run: dict[str, list[asyncio.Future[None]]] = {}

    def __iter__(self) -> Iterator[asyncio.Future[None]]:
        for waiting in self._by_run.values():
            yield from waiting

    @property
    def names(self) -> tuple[str, ...]:
        """The runs for whose ends someone waits."""
        return tuple(
            id for id, waiting in self._by_run.items() if not all(f.done() for f in waiting)
        )

    def wait(self, id: str) -> asyncio.Future[None]:
        """Resolved when the run is said to have ended."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._by_run.setdefault(id, [])
        if waiting and waiting[-1].done():
            waiting[:] = [other for other in waiting if not other.done()]
        waiting.append(future)
        return future

    def release(self, id: str, error: Exception | None = None) -> None:
        """The run has ended, or nothing more will be known of it."""
        for waiter in self._by_run.pop(id, ()):
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
