"""Faults that are answers with a status: limits, overload, bad keys, refused requests, pages of
proxies.

Each is a function of the scene; it gives the trouble in the words of the scene's provider.
"""

from __future__ import annotations

from typing import Any

from retinue.testing.fake_llm.dialect import FakeError
from retinue.testing.fake_llm.fake_request import FakeRequest
from retinue.testing.fake_llm.http_server import head

RPC = "type.googleapis.com/google.rpc"
OPENAI_BUSY = (
    "The server is currently overloaded with other requests. Sorry about that! Please "
    "try again later."
)
GEMINI_BUSY = "The model is overloaded. Please try again later."
TOO_LONG = "prompt is too long: 208310 tokens > 200000 maximum"
WINDOW = (
    "This model's maximum context length is 200000 tokens. However, your messages resulted in "
    "208310 tokens. Please reduce the length of the messages."
)
GEMINI_WINDOW = (
    "The input token count (208310) exceeds the maximum number of tokens allowed (200000)."
)


def _of(
    scene: FakeRequest, anthropic: FakeError, openai: FakeError, gemini: FakeError
) -> FakeError:
    match scene.wire.dialect:
        case "anthropic":
            return anthropic
        case "gemini":
            return gemini
        case _:
            return openai


def _anthropic(status: int, kind: str, message: str, **more: Any) -> FakeError:
    return FakeError(status, kind, message, **more)


def _openai(
    status: int, message: str, code: str | None = None, kind: str = "server_error", **more: Any
) -> FakeError:
    return FakeError(status, kind, message, code=code, **more)


def _gemini(status: int, kind: str, message: str, **more: Any) -> FakeError:
    return FakeError(status, kind, message, **more)


def rate_limit(scene: FakeRequest) -> FakeError:
    asked = scene.settings.retry_after_seconds
    seven, short, long = (7.0, 1.5, 34.0) if asked is None else (asked, asked, asked)
    info = [{"@type": f"{RPC}.RetryInfo", "retryDelay": f"{long:g}s"}]
    text = f"Rate limit reached for {scene.heard.model}. Please try again in {short:g}s."
    wait = {"retry-after-ms": f"{short * 1000:g}", "x-ratelimit-reset-tokens": "6m0s"}
    return _of(
        scene,
        _anthropic(
            429,
            "rate_limit_error",
            "This request would exceed your account's rate limit. Please try again later.",
            headers={"retry-after": f"{seven:g}"},
        ),
        _openai(429, text, "rate_limit_exceeded", "tokens", headers=wait),
        _gemini(429, "RESOURCE_EXHAUSTED", f"Please retry in {long:g}s.", details=info),
    )


def spent(scene: FakeRequest) -> FakeError:
    limit = {"error_code": "enforced_spend_limit_reached"}
    quota = {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
        "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
        "quotaValue": "250",
    }
    violations = [{"@type": f"{RPC}.QuotaFailure", "violations": [quota]}]
    text = "You exceeded your current quota, please check your plan and billing details."
    return _of(
        scene,
        _anthropic(
            429,
            "rate_limit_error",
            "You have reached your specified API usage limits.",
            details=limit,
        ),
        _openai(429, text, "insufficient_quota", "insufficient_quota"),
        _gemini(429, "RESOURCE_EXHAUSTED", text, details=violations),
    )


def unpaid(scene: FakeRequest) -> FakeError:
    return _of(
        scene,
        _anthropic(
            402,
            "billing_error",
            "There is a problem with your billing. Please check your payment details.",
        ),
        _openai(
            429,
            "Your account is not active, please check your billing details.",
            "billing_not_active",
        ),
        _gemini(
            400,
            "FAILED_PRECONDITION",
            "Gemini API free tier is not available in your country. Please enable billing on your "
            "project.",
        ),
    )


def no_credit(scene: FakeRequest) -> FakeError:
    text = (
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & "
        "Billing to upgrade."
    )
    return _anthropic(400, "invalid_request_error", text)


def overloaded(scene: FakeRequest) -> FakeError:
    return _of(
        scene,
        _anthropic(529, "overloaded_error", "Overloaded"),
        _openai(503, OPENAI_BUSY, "server_is_overloaded"),
        _gemini(503, "UNAVAILABLE", GEMINI_BUSY),
    )


def slow_down(scene: FakeRequest) -> FakeError:
    return _openai(503, "Please reduce your request rate and try again.", "slow_down")


def broken(scene: FakeRequest) -> FakeError:
    return _of(
        scene,
        _anthropic(500, "api_error", "Internal server error"),
        _openai(500, "The server had an error while processing your request. Sorry about that!"),
        _gemini(500, "INTERNAL", "An internal error has occurred. Please retry."),
    )


def timed_out(scene: FakeRequest) -> FakeError:
    return _of(
        scene,
        _anthropic(504, "timeout_error", "Request timed out"),
        _openai(504, "Gateway timeout."),
        _gemini(
            504,
            "DEADLINE_EXCEEDED",
            "The service is unable to finish processing within the deadline.",
        ),
    )


def bad_key(scene: FakeRequest) -> FakeError:
    key = scene.ask.key
    shown = f"{key[:4]}{'*' * max(len(key) - 8, 4)}{key[-4:]}"
    reason = [
        {"@type": f"{RPC}.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
    ]
    return _of(
        scene,
        _anthropic(401, "authentication_error", "invalid x-api-key"),
        _openai(
            401, f"Incorrect API key provided: {shown}.", "invalid_api_key", "invalid_request_error"
        ),
        _gemini(
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            details=reason,
        ),
    )


def forbidden(scene: FakeRequest) -> FakeError:
    text = f"The key {scene.ask.key} does not have permission to use this resource."
    return _of(
        scene,
        _anthropic(403, "permission_error", text),
        _openai(403, text, "insufficient_permissions", "invalid_request_error"),
        _gemini(403, "PERMISSION_DENIED", text),
    )


def no_model(scene: FakeRequest) -> FakeError:
    model = scene.heard.model
    text = f"The model `{model}` does not exist or you do not have access to it."
    return _of(
        scene,
        _anthropic(404, "not_found_error", f"model: {model}"),
        _openai(404, text, "model_not_found", "invalid_request_error"),
        _gemini(404, "NOT_FOUND", f"models/{model} is not found for API version v1beta."),
    )


def too_long(scene: FakeRequest) -> FakeError:
    param = "input" if scene.wire.dialect == "openai_responses" else "messages"
    return _of(
        scene,
        _anthropic(400, "invalid_request_error", TOO_LONG),
        _openai(400, WINDOW, "context_length_exceeded", "invalid_request_error", param=param),
        _gemini(400, "INVALID_ARGUMENT", GEMINI_WINDOW),
    )


def too_long_and_broken(scene: FakeRequest) -> FakeError:
    return _gemini(500, "INTERNAL", GEMINI_WINDOW)


def too_large(scene: FakeRequest) -> FakeError:
    return _of(
        scene,
        _anthropic(413, "request_too_large", "Request exceeds the maximum size"),
        _openai(413, "Request body is too large.", "request_too_large", "invalid_request_error"),
        _gemini(413, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."),
    )


def orphan(scene: FakeRequest) -> FakeError:
    chat = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: call_1"
    )
    text = (
        chat
        if scene.wire.dialect == "openai_chat"
        else "No tool output found for function call call_1."
    )
    param = "messages.[2].role" if scene.wire.dialect == "openai_chat" else "input"
    return _of(
        scene,
        _anthropic(
            400,
            "invalid_request_error",
            "messages.19: `tool_use` ids were found without `tool_result` blocks immediately "
            "after: toolu_01. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message.",
        ),
        _openai(400, text, None, "invalid_request_error", param=param),
        _gemini(
            400,
            "INVALID_ARGUMENT",
            "Please ensure that the number of function response parts is equal to the number of "
            "function call parts of the function call turn.",
        ),
    )


def bad_seal(scene: FakeRequest) -> FakeError:
    return _of(
        scene,
        _anthropic(
            400,
            "invalid_request_error",
            "messages.1.content.0: Invalid `signature` in `thinking` block",
        ),
        _openai(
            400,
            "The encrypted content gAAA... could not be verified.",
            "invalid_encrypted_content",
            "invalid_request_error",
        ),
        _gemini(
            400,
            "INVALID_ARGUMENT",
            "Function call is missing a thought_signature in functionCall parts.",
        ),
    )


def bad_schema(scene: FakeRequest) -> FakeError:
    name = scene.heard.tools[0].name if scene.heard.tools else "lookup"
    chat = scene.wire.dialect == "openai_chat"
    field = "tools[0].function_declarations[0].parameters"
    text = (
        f"Invalid JSON payload received. Unknown name \"$schema\" at '{field}': Cannot find field."
    )
    details = [
        {"@type": f"{RPC}.BadRequest", "fieldViolations": [{"field": field, "description": text}]}
    ]
    return _of(
        scene,
        _anthropic(
            400,
            "invalid_request_error",
            "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft "
            "2020-12",
        ),
        _openai(
            400,
            f"Invalid schema for function '{name}': In context=('properties', 'x'), array schema "
            "missing items.",
            "invalid_function_parameters",
            "invalid_request_error",
            param="tools[0].function.parameters" if chat else "tools[0].parameters",
        ),
        _gemini(400, "INVALID_ARGUMENT", text, details=details),
    )


def page(scene: FakeRequest, status: int, title: str) -> None:
    """What a proxy in between says: a page, in no provider's shape."""
    text = (
        f"<html>\r\n<head><title>{status} "
        f"{title}</title></head>\r\n<body>\r\n<center><h1>{status} {title}</h1>"
        "</center>\r\n<hr><center>cloudflare</center>\r\n</body>\r\n</html>\r\n"
    )
    scene.conn.answer(status, {"server": "cloudflare"}, text.encode(), "text/html; charset=UTF-8")


def redirect(scene: FakeRequest) -> None:
    scene.conn.send(head(307, {"location": scene.settings.elsewhere, "content-length": "0"}))


def giant_header(scene: FakeRequest) -> None:
    start, body = scene.whole(scene.say())
    scene.conn.send(
        start[:-2] + b"x-giant: " + b"x" * scene.settings.header_bytes + b"\r\n\r\n" + body
    )
