"""How tests wait for what other processes, threads or tasks do: for exactly what is asserted, and
never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

SECONDS = 120.0
"""After so long something that must happen counts as never happening. When all is well nothing is
slower by it."""
PATIENT = {"RETINUE_START_SECONDS": str(SECONDS)}
"""For commands in a process of their own: a host that they start needs time on a busy machine."""


async def until(what: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Ask again until there is an answer. (By the real time, also where a loop has another one.)"""
    end = time.monotonic() + seconds
    while not (result := what()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true")
        await asyncio.sleep(0.005)
    return result


def until_here(what: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """The same outside of a loop."""
    end = time.monotonic() + seconds
    while not (result := what()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true")
        time.sleep(0.01)
    return result
