"""Two questions about coroutines: what does one return that does not wait, and was this task cancelled by us?"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from retinue.errors import RetinueError

T = TypeVar("T")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    work.close()
    raise RetinueError("a quick tool may not wait")


def asked_to_stop() -> bool:
    """Whether this task was cancelled by us; a tool or a model may also raise the same exception by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
