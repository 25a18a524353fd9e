"""Reads rate limits and waiting times from a provider's headers. A header may be 64 KiB of
anything: it is cut to a length that can be meant before it is parsed."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST = 64
"""Characters of a number, a span of time or a date. What is longer is none of them, and parsing it
could take minutes: the patterns, and Python's own conversions, take the square of the length."""
_LIMIT = re.compile(
    r"x-ratelimit-(?P<a>limit|remaining|reset)-(?P<b>requests|tokens)"
    r"|anthropic-ratelimit-(?P<c>requests|tokens|input-tokens|output-tokens)-(?P<d>limit|remaining|reset)",
    re.IGNORECASE,
)
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def limits_in(headers: Mapping[str, str]) -> dict[str, tuple[float, float, float]]:
    """Limit, what is left of it, and seconds until it is full again, by name, where the headers
    tell all three."""
    groups: dict[str, dict[str, str]] = {}
    if "limit" not in " ".join(headers).lower():
        return {}
    for header, value in headers.items():
        if "limit" in header.lower() and (match := _LIMIT.fullmatch(header)) is not None:
            groups.setdefault((match["b"] or match["c"]).lower(), {})[
                (match["a"] or match["d"]).lower()
            ] = value
    out = {}
    for name, fields in groups.items():
        limit, remaining = _number(fields.get("limit", "")), _number(fields.get("remaining", ""))
        if limit is not None and limit > 0 and remaining is not None:
            out[name] = (limit, min(remaining, limit), until(fields.get("reset", ""), headers))
    return out


def used_up(headers: Mapping[str, str]) -> float:
    """Seconds until an account's limits are filled again, as far as the answer says that nothing is
    left."""
    return max(
        (seconds for _, remaining, seconds in limits_in(headers).values() if remaining <= 0),
        default=0.0,
    )


def asked_for(headers: Mapping[str, str]) -> float:
    """`Retry-After` in seconds, as a number or as a date, or `retry-after-ms`; 0 when there is
    none."""
    fields = {
        name.lower(): value
        for name, value in headers.items()
        if name.lower().startswith("retry-after")
    }
    exact = _number(fields.get("retry-after-ms", ""))
    if exact is not None:
        return exact / 1_000
    return until(fields.get("retry-after", ""), headers)


def until(text: str, headers: Mapping[str, str]) -> float:
    """Seconds: a number, `6m0s`, or the time from now to a date, by the provider's own clock if it
    tells it."""
    text = bounded(text)
    if (seconds := _number(text)) is not None:
        return seconds
    if text and not _PARTS.sub("", text):
        return sum(float(n) * _UNITS[unit] for n, unit in _PARTS.findall(text))
    then = _date(text)
    if then is None:
        return 0.0
    date = next((value for name, value in headers.items() if name.lower() == "date"), "")
    return max(0.0, (then - (_date(date) or datetime.now(UTC))).total_seconds())


def bounded(text: str) -> str:
    """The text, if it is short enough to be a number, a span or a date; else nothing."""
    return text.strip() if len(text) <= LONGEST else ""


def _number(text: str) -> float | None:
    try:
        value = float(bounded(text))
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def _date(text: str) -> datetime | None:
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with contextlib.suppress(ValueError, TypeError, IndexError, OverflowError):
            date = read(bounded(text))
            return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return None
