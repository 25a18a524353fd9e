"""Faults that are an HTTP error: limits, overload, bad keys, refused requests, proxy pages.

Each is a function of the scene; it gives the trouble in the words of the scene's provider.
"""

from __future__ import annotations

from retinue.testing.fake_llm.dialect import FakeError
from retinue.testing.fake_llm.error_bodies import (
    RPC,
    anthropic_error,
    by_dialect,
    gemini_error,
    openai_error,
)
from retinue.testing.fake_llm.fake_request import FakeRequest
from retinue.testing.fake_llm.http_server import head

OPENAI_BUSY = (
    "The server is currently overloaded with other requests. Sorry about that! Please "
    "try again later."
)
GEMINI_BUSY = "The model is overloaded. Please try again later."


def rate_limit(scene: FakeRequest) -> FakeError:
    seconds = scene.settings.retry_after_seconds
    seven, short, long = (7.0, 1.5, 34.0) if seconds is None else (seconds, seconds, seconds)
    info = [{"@type": f"{RPC}.RetryInfo", "retryDelay": f"{long:g}s"}]
    text = f"Rate limit reached for {scene.heard.model}. Please try again in {short:g}s."
    wait = {"retry-after-ms": f"{short * 1000:g}", "x-ratelimit-reset-tokens": "6m0s"}
    return by_dialect(
        scene,
        anthropic_error(
            429,
            "rate_limit_error",
            "This request would exceed your account's rate limit. Please try again later.",
            headers={"retry-after": f"{seven:g}"},
        ),
        openai_error(429, text, "rate_limit_exceeded", "tokens", headers=wait),
        gemini_error(429, "RESOURCE_EXHAUSTED", f"Please retry in {long:g}s.", details=info),
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
    return by_dialect(
        scene,
        anthropic_error(
            429,
            "rate_limit_error",
            "You have reached your specified API usage limits.",
            details=limit,
        ),
        openai_error(429, text, "insufficient_quota", "insufficient_quota"),
        gemini_error(429, "RESOURCE_EXHAUSTED", text, details=violations),
    )


def unpaid(scene: FakeRequest) -> FakeError:
    return by_dialect(
        scene,
        anthropic_error(
            402,
            "billing_error",
            "There is a problem with your billing. Please check your payment details.",
        ),
        openai_error(
            429,
            "Your account is not active, please check your billing details.",
            "billing_not_active",
        ),
        gemini_error(
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
    return anthropic_error(400, "invalid_request_error", text)


def overloaded(scene: FakeRequest) -> FakeError:
    return by_dialect(
        scene,
        anthropic_error(529, "overloaded_error", "Overloaded"),
        openai_error(503, OPENAI_BUSY, "server_is_overloaded"),
        gemini_error(503, "UNAVAILABLE", GEMINI_BUSY),
    )


def slow_down(scene: FakeRequest) -> FakeError:
    return openai_error(503, "Please reduce your request rate and try again.", "slow_down")


def broken(scene: FakeRequest) -> FakeError:
    return by_dialect(
        scene,
        anthropic_error(500, "api_error", "Internal server error"),
        openai_error(
            500, "The server had an error while processing your request. Sorry about that!"
        ),
        gemini_error(500, "INTERNAL", "An internal error has occurred. Please retry."),
    )


def timed_out(scene: FakeRequest) -> FakeError:
    return by_dialect(
        scene,
        anthropic_error(504, "timeout_error", "Request timed out"),
        openai_error(504, "Gateway timeout."),
        gemini_error(
            504,
            "DEADLINE_EXCEEDED",
            "The service is unable to finish processing within the deadline.",
        ),
    )


def bad_key(scene: FakeRequest) -> FakeError:
    key = scene.ask.key
    key_text = f"{key[:4]}{'*' * max(len(key) - 8, 4)}{key[-4:]}"
    reason = [
        {"@type": f"{RPC}.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
    ]
    return by_dialect(
        scene,
        anthropic_error(401, "authentication_error", "invalid x-api-key"),
        openai_error(
            401,
            f"Incorrect API key provided: {key_text}.",
            "invalid_api_key",
            "invalid_request_error",
        ),
        gemini_error(
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            details=reason,
        ),
    )


def forbidden(scene: FakeRequest) -> FakeError:
    text = f"The key {scene.ask.key} does not have permission to use this resource."
    return by_dialect(
        scene,
        anthropic_error(403, "permission_error", text),
        openai_error(403, text, "insufficient_permissions", "invalid_request_error"),
        gemini_error(403, "PERMISSION_DENIED", text),
    )


def no_model(scene: FakeRequest) -> FakeError:
    model = scene.heard.model
    text = f"The model `{model}` does not exist or you do not have access to it."
    return by_dialect(
        scene,
        anthropic_error(404, "not_found_error", f"model: {model}"),
        openai_error(404, text, "model_not_found", "invalid_request_error"),
        gemini_error(404, "NOT_FOUND", f"models/{model} is not found for API version v1beta."),
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
