"""Translates errors of the Responses API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retinue.errors import ModelError
from retinue.models.provider_errors import MAX_WORDS, delay, failed, worded

# What an error is, by its code or its type or, where they say nothing, by the status.
CODES = {
    "auth": "401 403 invalid_api_key account_deactivated",
    "quota": "402 insufficient_quota billing_hard_limit_reached billing_not_active "
    "usage_limit_reached",
    "rate_limit": "429 rate_limit_exceeded",
    "overloaded": "503 529 server_is_overloaded slow_down",
    "server_error": "408 409 425 server_error vector_store_timeout",
    "not_found": "404 model_not_found",
    "context_exhausted": "context_length_exceeded",
    "too_large": "413 request_too_large",
    "bad_schema": "invalid_function_parameters invalid_json_schema",
    "content_filter": "content_filter content_policy_violation image_content_policy_violation "
    "invalid_prompt"
    " bio_policy cyber_policy misalignment_policy_violation",
}
KINDS = {code: kind for kind, codes in CODES.items() for code in codes.split()}
# These words go before a code: a request that is too large has the code of a rate limit, but
# waiting cannot help it.
WORDS = {
    "context_exhausted": re.compile(r"context window|maximum context length", re.I),
    "quota": re.compile(r"exceeded your current quota", re.I),
    "too_large": re.compile(r"request too large", re.I),
    "bad_schema": re.compile(r"invalid schema for", re.I),
    "auth": re.compile(r"incorrect api key", re.I),
    "content_filter": re.compile(r"input was flagged|requires moderation", re.I),
}


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def fault_of(status: int, error: Any, headers: Mapping[str, str]) -> ModelError:
    """A provider's error as ours. The status is 0 inside a stream."""
    problem = error if isinstance(error, dict) else {"message": error}
    code, sort, param = (text_of(problem.get(name)) for name in ("code", "type", "param"))
    status = status or (problem["code"] if type(problem.get("code")) is int else 0)
    words = worded(text_of(problem.get("message") or problem.get("detail")))
    kind = (
        next((name for name, sign in WORDS.items() if sign.search(words)), "")
        or KINDS.get(code)
        or KINDS.get(sort)
    )
    # An item of the input that is not found is not a model that is not found.
    if not kind and (status, param) != (404, "input"):
        kind = KINDS.get(str(status))
    if not kind:
        is_ours = 400 <= status < 500 or (
            not status and (sort == "invalid_request_error" or "image" in code)
        )
        kind = "invalid_request" if is_ours else "server_error"
    if kind == "auth" and status != 403:
        words = "authentication failed"
    words = words or (f"the provider answered {status}" if status else "the provider failed")
    notes = worded(", ".join(note for note in (code, param) if note and note not in words))[:100]
    message = (f"{words[: MAX_WORDS - 103]} ({notes})" if notes else words)[:MAX_WORDS]
    return failed(kind, message, delay(headers, words))
