"""Starts the task of a call, and tells whether a task was cancelled by Retinue."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class CallTask(asyncio.Task[None]):
    """A call of a model or a tool, for the runtime whose loop is the task `keeper`. The code that
    is called can cancel it too; that is a mistake of the call, and not its end."""

    def __init__(
        self, work: Coroutine[Any, Any, None], keeper: asyncio.Task[None] | None, name: str = ""
    ) -> None:
        super().__init__(work, loop=asyncio.get_running_loop(), name=name or None)
        self._keeper, self._is_stopped = keeper, False

    def stop(self) -> None:
        """Cancel it for the runtime."""
        self._is_stopped = True
        self.cancel()

    @property
    def is_stopped(self) -> bool:
        """Whether the runtime has stopped it, or is stopped itself: a program that closes cancels
        all its tasks."""
        keeper = self._keeper
        return self._is_stopped or (
            keeper is not None and (keeper.done() or keeper.cancelling() > 0)
        )


def asked_to_stop() -> bool:
    """Whether this task was cancelled by us; a tool or a model may also raise the same exception,
    or cancel the task in which it is called."""
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return False
    return task.is_stopped if isinstance(task, CallTask) else True


async def take_cancellation() -> None:
    """Raise the cancellation that this task was asked for and that has not reached it yet, so that
    it does not end what comes afterwards."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)
