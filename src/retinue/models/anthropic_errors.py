"""Translates Anthropic's errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retinue.errors import ModelError
from retinue.models.provider_errors import delay, failed, worded

STATUS = {
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}
QUOTA = re.compile(
    r"credit balance is too low|specified api usage limits|spend(?:ing)? limit", re.I
)
DISABLED = re.compile(r"organization has been disabled", re.I)
FAULTS = (
    (
        "context_exhausted",
        re.compile(
            r"(?:prompt|input) is too long|exceeds? (?:the )?context (?:limit|window)", re.I
        ),
    ),
    ("content_filter", re.compile(r"content filter", re.I)),
    ("bad_schema", re.compile(r"(?<![\w.])(?:tools\.\d+\.|output_config\.format)")),
)


def failure_of(status: int, error: dict[str, Any], headers: Mapping[str, str]) -> ModelError:
    """The provider's word for what went wrong, as ours. The broad types say less than the status
    does."""
    error_type, words_said = (
        value if isinstance(value := error.get(name), str) else "" for name in ("type", "message")
    )
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    status = (
        STATUS.get(error_type) or status or (400 if error_type == "invalid_request_error" else 500)
    )
    words = worded(words_said) or f"the provider answered with status {status}" + (
        f" ({worded(error_type)})" if error_type else ""
    )
    if (
        status == 402
        or code == "enforced_spend_limit_reached"
        or (status in (400, 403, 429) and QUOTA.search(words_said))
    ):
        return failed("quota", words)
    if (
        status in (401, 403)
        or code == "organization_on_hold"
        or (status == 400 and DISABLED.search(words_said))
    ):
        return failed("auth", worded(words, has_key=True))
    if status in (408, 409, 429) or status >= 500 or status < 300:
        by_status = {429: "rate_limit", 503: "overloaded", 529: "overloaded"}
        kind = by_status.get(status, "server_error")
        return failed(kind, words, delay(headers, words_said))
    kinds = [kind for kind, pattern in FAULTS if pattern.search(words_said)]
    return failed(
        {404: "not_found", 413: "too_large"}.get(status) or [*kinds, "invalid_request"][0], words
    )
