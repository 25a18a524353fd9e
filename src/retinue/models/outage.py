"""A provider that gets no calls for a while: its answer, and until when."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from retinue.core.values import ProviderTrouble
from retinue.errors import ModelError, ModelUnavailable
from retinue.models.base import Outage

if TYPE_CHECKING:
    from retinue.models.governor import Governor


def outage_of(governor: Governor) -> Outage | None:
    """What keeps calls from leaving now, if it is something that the provider has answered."""
    failure, now = governor.last_failure, governor.seconds()
    until = max(governor.cool_until, governor.next_probe if governor.is_broken else 0.0)
    if failure is None or (until <= now and not governor.is_broken):
        return None
    return Outage(failure.kind, failure.trouble, max(0.0, until - now))


def trouble_of(error: ModelError, status: int, provider: str, url: str) -> ProviderTrouble:
    """Whose trouble an error is, and what was answered: the status, if it is not that of a reply
    that failed later."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    answer = str(status) if status not in (0, 200) else ""
    return ProviderTrouble(
        provider=provider or host,
        answer=answer or error.cause or error.kind.replace("_", " "),
        host=host,
    )


def loop_seconds() -> float:
    """The clock of the loop; outside of one, which is only for looking, the one that loops go
    by."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def bare(error: ModelError) -> ModelUnavailable:
    """The same without a traceback, in which the request is with all its pictures."""
    after = getattr(error, "retry_after", 0.0)
    same = ModelUnavailable(str(error), kind=error.kind, retry_after=after)
    same.trouble = error.trouble
    return same
