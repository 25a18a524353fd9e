"""The only source of time and randomness."""

from __future__ import annotations

import secrets
import time
from typing import Protocol


class Clock(Protocol):
    """`now` is milliseconds since the epoch and never goes back; `chance` is a fresh random
    name."""

    def now(self) -> int: ...

    def chance(self) -> str: ...


class SystemClock:
    """The machine's time at the start, carried on by the monotonic clock: a jump of the wall moves
    no deadline."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        return (time.monotonic_ns() + self._offset) // 1_000_000

    def chance(self) -> str:
        return secrets.token_hex(16)
