"""Shortens the interpreter's thread switch interval while a store is open.

The writer needs it for some microseconds after each statement. Beside a busy event loop it would
wait for it 5 ms each time, which is Python's default, and every step waits for the commit. The
setting is one of the whole process, so it is put back when the last store is closed."""

from __future__ import annotations

import sys
from threading import Lock

SECONDS = 0.000_1

_lock = Lock()
_open: list[float] = []


def begin() -> None:
    """A writer's thread begins."""
    with _lock:
        _open.append(sys.getswitchinterval())
        sys.setswitchinterval(min(SECONDS, _open[0]))


def end() -> None:
    """One has ended. What was set before the first of them holds again after the last."""
    with _lock:
        before = _open[0]
        _open.pop()
        if not _open:
            sys.setswitchinterval(before)
