"""The reason why a request got no response, in words."""

from __future__ import annotations

import socket

from retinue.core.redaction import Redactor
from retinue.models.connection_pool import Times


def cause_of(error: Exception) -> str:
    """A word for why no answer came; "" where there is none but the kind of the failure."""
    match error.__cause__ if isinstance(error.__cause__, OSError) else error:
        case TimeoutError():
            return "timed out"
        case ConnectionRefusedError():
            return "refused"
        case socket.gaierror():
            return "unknown host"
        case ConnectionError():
            return "connection lost"
        case OSError():
            return "unreachable"
        case _:
            return ""


def short(error: BaseException, redactor: Redactor) -> str:
    return redactor.clean(f"{type(error).__name__}: {error}")[:300]


def phase_that_was_late(error: TimeoutError, times: Times) -> str:
    """Which of the times was over."""
    match str(error):
        case "headers":
            return "no headers received"
        case "idle":
            return f"no data for {times.idle:g} s"
        case "content":
            return f"no content for {times.content:g} s, only keep-alive data"
        case "attempt":
            return f"not complete after {times.attempt:g} s"
        case phase:
            return phase or "no connection"
