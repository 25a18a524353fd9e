"""Starts and ends processes: a cancelled task leaves no process behind, every wait has a deadline,
and no descriptor stays open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable
from typing import Any, TypeVar

GONE_SECONDS = 5.0
LOOK_SECONDS = 0.005
log = logging.getLogger("retinue.tools")
T = TypeVar("T")


async def start(*argv: str, **options: Any) -> asyncio.subprocess.Process:
    """As `asyncio.create_subprocess_exec`, which, when it is cancelled halfway, kills the outermost
    process alone and then waits until those inside have closed its pipes: without end, if one of
    them waits for input."""
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*argv, **options))
    try:
        return await finish_first(starting)
    except asyncio.CancelledError:
        if not starting.cancelled() and starting.exception() is None:
            await end(starting.result())
        raise


async def finish_first(awaitable: Awaitable[T]) -> T:
    """The result of something short that must not be cut in two: a cancellation is raised when it
    is done."""
    task = asyncio.ensure_future(awaitable)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        raise


async def ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether it has ended in that time. (`process.wait` also waits until its pipes are read to
    their ends: no one does that once they are paused, and others may hold them open.)"""
    until = asyncio.get_running_loop().time() + seconds
    while process.returncode is None:
        if asyncio.get_running_loop().time() >= until:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill it if it still runs, and close its pipes, read or not. In a task of its own, so that a
    cancelled task leaves nothing behind."""
    await asyncio.shield(asyncio.get_running_loop().create_task(_end(process)))


def _kill(process: asyncio.subprocess.Process) -> None:
    """With its group, if it has one of its own: the inner process of bwrap lives on when the outer
    one is killed before it has asked to die with it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()


async def _end(process: asyncio.subprocess.Process) -> None:
    # asyncio offers no other way to let go of a pipe that is not read.
    transport: Any = getattr(process, "_transport", None)
    if process.returncode is None:
        _kill(process)
    for n in (0, 1, 2):
        pipe = transport.get_pipe_transport(n) if transport is not None else None
        if pipe is not None and not pipe.is_closing():
            pipe.abort() if n == 0 else pipe.close()  # what was not written yet is not waited for
    if not await ended(process, GONE_SECONDS):
        log.warning(
            "process %d was killed %g s ago and has not ended: no longer waiting for it",
            process.pid,
            GONE_SECONDS,
        )
    if transport is not None:
        transport.close()
    await asyncio.sleep(0)  # the loop closes the pipes
