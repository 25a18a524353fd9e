"""Translates errors of OpenAI and of servers compatible with its Chat Completions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retinue.errors import ModelError
from retinue.models.openai_chat_json import as_a, as_json
from retinue.models.provider_errors import MAX_WORDS, delay, failed, worded

_KINDS = (
    # A model that wrote a call which Groq cannot read may write a better one.
    ("server_error", "tool_use_failed|json_validate_failed|output_parse_failed"),
    (
        "quota",
        "^402|insufficient[_ ](quota|balance|credit|fund)|exceeded your current "
        "quota|billing_hard_limit",
    ),
    (
        "quota",
        "credit balance|spending limit|(all available|more|out of|not enough) "
        "credits|billing_not_active",
    ),
    (
        "quota",
        "exceeded_current_quota|arrearage|account is (suspended|in arrears)|in good standing",
    ),
    ("too_large", "^413|(request|payload|entity) too large"),
    (
        "context_exhausted",
        "^(?!4[02][1349]).*(context[_ ](length|window|size)|(prompt|input) (length|(is )?too "
        "long))",
    ),
    (
        "context_exhausted",
        "^(?!4[02][1349]).*(too many tokens|input token count|reduce the length|large for model)",
    ),
    (
        "content_filter",
        "content_filter|content_policy|content exists risk|input was flagged|requires moderation",
    ),
    (
        "bad_schema",
        r"invalid_function_parameters|invalid_json_schema|invalid "
        r"schema|tools?\[\d+\].*(schema|param)",
    ),
    (
        "overloaded",
        "^(498|503|529)|overloaded|slow_down|at capacity|unavailable_error|insufficient_system",
    ),
    (
        "auth",
        "^(?!5).*(invalid_api_key|(incorrect|invalid) api key|api key not "
        "valid|authentication)|^40[13]",
    ),
    (
        "not_found",
        "^(?!5).*(model_not_found|not a valid model|invalid model|model.{0,80} not "
        "(exist|found))|^404",
    ),
    ("rate_limit", "^429|rate[_ ]limit|too many requests"),
    ("server_error", "^(408|409|425|5|[02](?!.*(invalid_request|badrequest)))"),
    ("invalid_request", ""),
)


def failure(status: int, value: Any, headers: Mapping[str, str] | None = None) -> ModelError:
    text = (value if isinstance(value, str) else as_json(value).decode()).lower()[:8_192]
    words = _words(value)[:2_000]
    if re.search(r"^\s*<|<(html|!doctype|head|body|title)", text + words.lower()):
        text = words = ""  # a proxy's page, which says less than its status
    if not status and (match := re.search(r'"(?:code|status|status_code)": ?"?([45]\d\d)\b', text)):
        status = int(match[1])
    kind = next(kind for kind, sign in _KINDS if re.search(sign, f"{status} {text}", re.DOTALL))
    after = delay(headers or {}, text)
    if kind == "quota" and status == 429 and after:
        kind = "rate_limit"  # Gemini calls each limit a quota, but says when it ends
    words = worded(words, has_key=kind == "auth") or "no reason given"
    return failed(kind, f"{f'HTTP {status}: ' * bool(status)}{words}"[:MAX_WORDS], after)


def _words(value: Any, depth: int = 4) -> str:
    """The sentence for people, wherever in an error a server put it."""
    if isinstance(value, list) and depth:
        return "; ".join(_words(item, depth - 1) for item in value[:4])
    if not isinstance(value, dict) or not depth:
        return as_a(str, value)
    words = next(
        (value[name] for name in ("error", "message", "detail", "msg") if value.get(name)), ""
    )
    raw = as_a(
        str, as_a(dict, value.get("metadata")).get("raw")
    )  # what the server behind OpenRouter said
    return " ".join(filter(None, (_words(words, depth - 1), raw)))
