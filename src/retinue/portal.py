"""The way into a runtime from other threads, and the check that sends them there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from retinue.core.type_parameters import P, R
from retinue.errors import RetinueError, WrongThread


class Portal:
    """Calls into a runtime from other threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call(self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `await function(...)` on the runtime's loop and wait for the result."""
        if asyncio._get_running_loop() is self._loop:
            raise WrongThread(
                "This is the thread of the runtime itself, which would wait for itself. Write: "
                "await retinue.run(agent, task)."
            )
        if self._loop.is_closed():
            raise RetinueError("This runtime is closed.")

        async def awaited() -> R:
            return await function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()


def check_loop(loop: asyncio.AbstractEventLoop | None) -> None:
    """Refuses a call from elsewhere than the loop on which the runtime was opened."""
    if loop is not None and asyncio._get_running_loop() is not loop:
        raise WrongThread(
            "This runtime belongs to another event loop. From a thread, write: "
            "retinue.portal().call(retinue.run, agent, task)."
        )
