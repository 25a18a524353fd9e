"""Turns a failed model call into its event."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from retinue.core.events import ModelFailed
from retinue.errors import ModelError, ModelUnavailable, RetinueError

log = logging.getLogger("retinue.models")


def model_failure(
    run: str, attempt: int, error: BaseException, wake: Callable[[], None], tries: int = 0
) -> ModelFailed:
    """The event of a failed attempt, after so many others. `wake` is called when a provider that
    was left alone answers again. The first failure of a call is logged as a warning."""
    if isinstance(error, ModelError):
        is_first = not tries or not isinstance(error, ModelUnavailable)
        log.log(
            logging.WARNING if is_first else logging.INFO,
            "a model call of run %s failed (%s, try %d): %s",
            run,
            error.kind,
            tries + 1,
            error,
        )
    if isinstance(error, ModelUnavailable):
        if error.hearers is not None:
            error.hearers[run] = wake
        return ModelFailed(
            attempt=attempt,
            kind=error.kind,
            message=str(error),
            retry=True,
            after_ms=round(error.retry_after * 1000),
            usage=error.usage,
            trouble=error.trouble,
        )
    if isinstance(error, ModelError):
        return ModelFailed(
            attempt=attempt,
            kind=error.kind,
            message=str(error),
            usage=error.usage,
            trouble=error.trouble,
        )
    if isinstance(error, RetinueError):
        return ModelFailed(attempt=attempt, kind="runtime_error", message=str(error))
    if isinstance(error, asyncio.CancelledError):
        message = "the model call was cancelled from inside"
    else:
        log.error("model %s raised an unexpected error", run, exc_info=error)
        message = f"{type(error).__name__}: {error}"
    return ModelFailed(attempt=attempt, kind="server_error", message=message)
