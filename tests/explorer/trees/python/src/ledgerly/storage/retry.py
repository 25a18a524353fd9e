"""Trying again, with a growing pause, when the journal is locked."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
ATTEMPTS = 5


def with_retry(act: Callable[[], T], pause: float = 0.05) -> T:
    """Call `act`; after a failure wait, twice as long each time, and try again."""
    for attempt in range(ATTEMPTS):
        try:
            return act()
        except OSError:
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(pause * 2**attempt)
    raise AssertionError("unreachable")
