"""Translates Gemini's errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retinue.errors import ModelError
from retinue.models.provider_errors import delay, failed, worded

TOOL = re.compile(r"function_?declarations\[(\d+)\]|`([\w.:-]+)` function_?declaration", re.I)
BY_WORDS = {
    "context_exhausted": r"token count\b.*\bexceeds|exceeds the maximum (?:number of )?tokens",
    "too_large": r"(?:payload|request) size exceeds",
    "auth": r"API_KEY_INVALID|api key (?:not valid|expired|not found)",
    "bad_schema": r"function_?declaration|parameters_?json_?schema|response_?(?:json_?)?schema",
}
BY_CODE = {
    401: "auth",
    403: "auth",
    404: "not_found",
    413: "too_large",
    503: "overloaded",
    529: "overloaded",
}
BY_CODE |= dict.fromkeys((408, 409, 425, 499), "server_error")


def error_in(value: Any) -> dict[str, Any]:
    """The error object in a body, however it is wrapped."""
    value = value[0] if isinstance(value, list) and value else value
    value = value.get("error", value) if isinstance(value, dict) else value
    return (
        value if isinstance(value, dict) else {"message": value if isinstance(value, str) else ""}
    )


def failure_of(code: int, headers: Mapping[str, str], error: dict[str, Any]) -> ModelError:
    raw_details = error.get("details")
    details = (
        [d for d in raw_details if isinstance(d, dict)] if isinstance(raw_details, list) else []
    )
    # What may be long is bounded before the patterns see it.
    state, text = str(error.get("status") or "")[:100], str(error.get("message") or "")[:4000]
    kind = _kind(code, state, text, str(details)[:4000])
    words = worded(text, has_key=kind == "auth") or "no reason given"
    message = f"HTTP {code} {worded(state)}".rstrip() + f": {words}"
    tool = TOOL.search(text) if kind == "bad_schema" else None
    if tool is not None:
        message = (
            f"the schema of tool {tool[2] or f'number {int(tool[1]) + 1}'} was refused: {message}"
        )
    return failed(
        kind,
        message,
        delay(headers, text, *(str(detail.get("retryDelay", "")) for detail in details)),
    )


def _kind(code: int, state: str, text: str, details: str) -> str:
    """The order matters: the words are more exact than the status, and a day's quota comes as a
    rate limit."""
    is_limit = code == 429 or state == "RESOURCE_EXHAUSTED"
    if is_limit or code == 402 or state == "FAILED_PRECONDITION":
        return "quota" if not is_limit or "PerDay" in details else "rate_limit"
    reason_kind = next(
        (kind for kind, words in BY_WORDS.items() if re.search(words, text + details, re.I | re.S)),
        "",
    )
    return (
        reason_kind or BY_CODE.get(code) or ("server_error" if code >= 500 else "invalid_request")
    )
