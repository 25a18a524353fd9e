"""Calls a runtime from other threads, and checks that other threads do so."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from retinue.core.type_parameters import P, R
from retinue.errors import ConfigError, RetinueError, WrongThread


class Portal:
    """Calls into a runtime from other threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call(self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `await function(...)` on the runtime's loop and wait for the result."""
        _check_verb(function)
        if asyncio._get_running_loop() is self._loop:
            raise WrongThread(
                "This is the thread of the runtime itself, which would wait for itself. Write: "
                "await retinue.run(agent, task)."
            )
        if self._loop.is_closed():
            raise RetinueError("This runtime is closed.")

        async def awaited() -> R:
            awaitable = function(*args, **kwargs)
            if not inspect.isawaitable(awaitable):
                raise ConfigError(
                    "Portal.call() takes a function that is awaited, such as retinue.run. Call a "
                    "plain one directly."
                )
            return await awaitable

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()


def _check_verb(function: Any) -> None:
    """A verb is handed over before it is called, and gives something to await."""
    if inspect.iscoroutine(function):
        function.close()
        raise ConfigError(
            "Portal.call() calls the verb itself. Write portal.call(retinue.run, agent, task), not "
            "portal.call(retinue.run(agent, task))."
        )
    if not callable(function):
        raise ConfigError(f"Portal.call() takes a function, not {function!r:.80}.")
    if inspect.isasyncgenfunction(inspect.unwrap(function)):
        name = getattr(function, "__name__", "This function")
        raise ConfigError(
            f"{name}() is an async iterator. Read it in a coroutine of your own, and "
            "call that: portal.call(read_all)."
        )


def check_loop(loop: asyncio.AbstractEventLoop | None) -> None:
    """Refuses a call from elsewhere than the loop on which the runtime was opened."""
    if loop is not None and asyncio._get_running_loop() is not loop:
        raise WrongThread(
            "This runtime belongs to another event loop. From a thread, write: "
            "retinue.portal().call(retinue.run, agent, task)."
        )
