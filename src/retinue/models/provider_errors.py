"""Shared by the error translators: safe text of a provider's message, its waiting time, and which
failures are retried. What a failure is, each dialect knows itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from retinue.core.state import REFUSALS
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.formats.safe_text import clean, one_line
from retinue.models.limit_headers import asked_for

MAX_WORDS = 500
MAX_DELAY = 86_400.0
PASSES = ("rate_limit", "quota", "auth", "overloaded", "server_error", "network", "forbidden")
"""Kinds of failures that are over some time: the account is filled, another key is brought, the
provider is back."""
PAGE = re.compile(r"^\s*<|<\s*(?:html|!doctype|head|body|center|title|script)\b", re.IGNORECASE)
KEY = re.compile(
    r"bearer\s+\S+|(?:key|provided): "
    r"?\S+|\b(?:sk|pk|rk|ek|gsk|xai|nvapi|sess|hf|csk|pplx)[-_][\w*.…-]{4,}"
    r"|\b(?:AIza|AQ\.|ya29\.)[\w.*-]{4,}|[\w-]{0,64}\*{3,}[\w-]{0,64}|\b(?=[A-Z]*\d)[A-Z0-9]{32,}\b",
    re.IGNORECASE,
)
LIKE_A_KEY = re.compile(r"\b(?=[\w.-]*\d)[\w.-]{12,}|[\w+/=-]{24,}")
AGAIN = re.compile(
    r"(?:(?:re)?try(?: again)? "
    r"(?:in|after)|retrydelay\W{1,8})\s*((?:\d[\d.]*\s*(?:ms|[smhd])[a-z]*\s*)+)",
    re.IGNORECASE,
)
SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|[smhd])", re.IGNORECASE)
SECONDS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def worded(words_said: object, *, has_key: bool = False) -> str:
    """The provider's own words: short, on one line, without anything that looks like a key; "" for
    a proxy's page, which says less than its status. Where a key is spoken of (`has_key`), more
    looks like one."""
    text = clean(str(words_said)[: 8 * MAX_WORDS])
    if PAGE.search(text):
        return ""
    text = KEY.sub("[key]", one_line(text))
    return (LIKE_A_KEY.sub("[key]", text) if has_key else text)[:MAX_WORDS]


def no_reason(status: int, body: bytes) -> ModelError | None:
    """A 403 in which no provider speaks: the page of a firewall or a proxy, or nothing at all. It
    was this request that was refused; of the key nothing is said."""
    if status != 403 or body.lstrip()[:1] in (b"{", b"["):
        return None
    answer = (
        worded(body[: 8 * MAX_WORDS].decode("utf-8", "replace"))
        or "an HTML page or nothing instead of a reason"
    )
    return failed(
        "forbidden",
        f"a proxy or firewall rejected this request before the provider (HTTP 403): {answer}"[
            :MAX_WORDS
        ],
    )


def delay(headers: Mapping[str, str], words: str, *spans: str) -> float:
    """Seconds that the provider asks to be left alone: in a header or in spans like `1m30s`, else
    in what it says."""
    seconds = max([asked_for(headers), *map(_seconds, spans)])
    if not seconds and (again := AGAIN.search(words[: 8 * MAX_WORDS])) is not None:
        seconds = _seconds(again[1])
    return min(MAX_DELAY, seconds)


def _seconds(span: str) -> float:
    return sum(float(n) * SECONDS[unit.lower()] for n, unit in SPAN.findall(span[:40]))


def failed(kind: str, message: str, retry_after: float = 0.0) -> ModelError:
    """The error for a kind of failure. What is refused to the whole account does not end by waiting
    for a while."""
    if kind in PASSES:
        return ModelUnavailable(
            message, kind=kind, retry_after=0.0 if kind in REFUSALS else retry_after
        )
    return ModelRejected(message, kind=kind)
