"""Reads answers typed as lines: only what is typed after the prompt counts, and pasted text does
not."""

from __future__ import annotations

import contextlib
import select
import sys

from retinue.view.ascii_marks import as_shown

QUIET_SECONDS = 0.4
"""So long nothing may be typed after a question has appeared; then it counts."""
MARK_SECONDS = 0.15
"""So long there must be between a choice and its confirmation, or after a line that is an
answer."""
MOST_WAITS = 25


def line_after(prompt: str) -> str | None:
    """The line that is typed after a prompt. None at the end of the input; "" for Enter alone, and
    for a paste."""
    put(prompt)
    line = sys.stdin.readline() if sys.stdin is not None else ""
    if not line:
        return None
    return "" if is_pasted() else line.strip()


def put(prompt: str) -> None:
    """Write a prompt. On a terminal not before nothing has been typed for a moment; what was typed
    is forgotten."""
    waits = 0
    while _is_terminal() and waits < MOST_WAITS:
        _forget()
        waits += 1
        if not _is_readable(QUIET_SECONDS):
            break
    _forget()
    sys.stderr.write(as_shown(prompt))
    sys.stderr.flush()


def is_pasted() -> bool:
    """Whether more came together with a line that was read, faster than anyone types; it is
    discarded too."""
    if not _is_terminal() or not _is_readable(MARK_SECONDS):
        return False
    _forget()
    return True


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _is_readable(seconds: float) -> bool:
    return bool(select.select([sys.stdin.fileno()], [], [], seconds)[0])


def _forget() -> None:
    import termios

    if _is_terminal():
        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
