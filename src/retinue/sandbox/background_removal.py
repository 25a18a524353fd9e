"""Removes large directories without blocking anyone: renamed now, deleted in the background."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading

from retinue.sandbox.folder_operations import remove

GONE = ".gone-"
SOON_SECONDS = 5.0


async def remove_soon(path: str | os.PathLike[str], seconds: float = SOON_SECONDS) -> None:
    """Take away what has this path. It is out of the way immediately, by a name with `GONE` in it;
    the calling code waits only so many seconds, and the end of the program not at all: then the
    rest stays for the next `sweep`."""
    doomed = f"{os.fspath(path)}{GONE}{os.urandom(6).hex()}"
    try:
        os.rename(path, doomed)
    except OSError:
        return
    await _in_background([doomed], seconds)


async def sweep(folder: str | os.PathLike[str], seconds: float = 0.0) -> None:
    """Continue with what was left in a folder when the program ended."""
    with contextlib.suppress(OSError):
        doomed = [f"{os.fspath(folder)}/{name}" for name in os.listdir(folder) if GONE in name]
        await _in_background(doomed, seconds)


async def _in_background(paths: list[str], seconds: float) -> None:
    """In a thread that the end of the program does not wait for."""
    if not paths:
        return
    loop, end = asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        for path in paths:
            remove(path)
        with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits
            loop.call_soon_threadsafe(end.set)

    threading.Thread(target=work, daemon=True, name="retinue-remove").start()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(end.wait(), seconds)
