"""Work that blocks, in threads that do not keep the process from ending: a client that closes its
end and never reads, or a host that is slow to start, must not be waited for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_daemon_thread(function: Callable[[], T]) -> T:
    """What the function returns or raises, in a thread of its own."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    threading.Thread(target=_settle, args=(future, function), daemon=True).start()
    return await future


class LineWriter:
    """Writes lines to a descriptor, each whole and in the order in which they came."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: queue.SimpleQueue[tuple[asyncio.Future[None], bytes]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    async def write(self, line: bytes) -> None:
        """Until the line is written. OSError when no one can read it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.put((future, line))
        await future

    def _work(self) -> None:
        while True:
            future, line = self._lines.get()
            _settle(future, lambda line=line: _write(self._fd, line))  # type: ignore[misc]


def _settle(future: asyncio.Future[Any], function: Callable[[], Any]) -> None:
    try:
        value = function()
    except Exception as error:
        _tell(future, future.set_exception, error)
    else:
        _tell(future, future.set_result, value)


def _tell(future: asyncio.Future[Any], tell: Callable[[Any], None], value: Any) -> None:
    def told() -> None:
        if not future.done():
            tell(value)

    with contextlib.suppress(RuntimeError):  # the loop is closed
        future.get_loop().call_soon_threadsafe(told)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
