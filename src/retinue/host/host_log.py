"""The log of a host. Nothing gets into it that was not cleaned of secrets: what Python would write
to stderr by itself goes through it too."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Mapping

from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of
from retinue.runtime.secret_filter import Redacting

log = logging.getLogger("retinue.host")
LOG_BYTES = 5 << 20
QUIET = ("uvicorn", "uvicorn.error", "uvicorn.asgi")


def own_redactor(more: Mapping[str, str]) -> Redactor:
    """What takes the secrets of this process out of texts, and these by their names."""
    redactor = Redactor(secrets_of(os.environ))
    redactor.learn(more)
    return redactor


def open_log(path: str, redactor: Redactor) -> None:
    """Write what is logged to this file from now on; stderr leads there as well."""
    with contextlib.suppress(OSError):
        if os.path.getsize(path) > LOG_BYTES:
            os.replace(path, path + ".1")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(fd, 2)
    os.close(fd)
    keep_clean(redactor)
    sys.excepthook = lambda kind, error, trace: log.critical(
        "the host failed", exc_info=(kind, error, trace)
    )


def keep_clean(redactor: Redactor) -> None:
    """Log to stderr, without secrets."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Redacting(redactor))
    logging.basicConfig(
        handlers=[handler],
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    sys.unraisablehook = lambda reason: log.error(
        "%s", reason.err_msg or "an error was lost", exc_info=reason.exc_value
    )
    threading.excepthook = lambda reason: log.error("a thread failed", exc_info=reason.exc_value)
