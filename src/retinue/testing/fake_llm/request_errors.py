"""Errors about a request: too long, too large, malformed."""

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

TOO_LONG = "prompt is too long: 208310 tokens > 200000 maximum"
WINDOW = (
    "This model's maximum context length is 200000 tokens. However, your messages resulted in "
    "208310 tokens. Please reduce the length of the messages."
)
GEMINI_WINDOW = (
    "The input token count (208310) exceeds the maximum number of tokens allowed (200000)."
)


def prompt_too_long(scene: FakeRequest) -> FakeError:
    param = "input" if scene.api.dialect == "openai_responses" else "messages"
    return by_dialect(
        scene,
        anthropic_error(400, "invalid_request_error", TOO_LONG),
        openai_error(400, WINDOW, "context_length_exceeded", "invalid_request_error", param=param),
        gemini_error(400, "INVALID_ARGUMENT", GEMINI_WINDOW),
    )


def too_long_and_broken(scene: FakeRequest) -> FakeError:
    return gemini_error(500, "INTERNAL", GEMINI_WINDOW)


def too_large(scene: FakeRequest) -> FakeError:
    return by_dialect(
        scene,
        anthropic_error(413, "request_too_large", "Request exceeds the maximum size"),
        openai_error(
            413, "Request body is too large.", "request_too_large", "invalid_request_error"
        ),
        gemini_error(
            413, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."
        ),
    )


def orphan(scene: FakeRequest) -> FakeError:
    chat = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: call_1"
    )
    text = (
        chat
        if scene.api.dialect == "openai_chat"
        else "No tool output found for function call call_1."
    )
    param = "messages.[2].role" if scene.api.dialect == "openai_chat" else "input"
    return by_dialect(
        scene,
        anthropic_error(
            400,
            "invalid_request_error",
            "messages.19: `tool_use` ids were found without `tool_result` blocks immediately "
            "after: toolu_01. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message.",
        ),
        openai_error(400, text, None, "invalid_request_error", param=param),
        gemini_error(
            400,
            "INVALID_ARGUMENT",
            "Please ensure that the number of function response parts is equal to the number of "
            "function call parts of the function call turn.",
        ),
    )


def bad_seal(scene: FakeRequest) -> FakeError:
    return by_dialect(
        scene,
        anthropic_error(
            400,
            "invalid_request_error",
            "messages.1.content.0: Invalid `signature` in `thinking` block",
        ),
        openai_error(
            400,
            "The encrypted content gAAA... could not be verified.",
            "invalid_encrypted_content",
            "invalid_request_error",
        ),
        gemini_error(
            400,
            "INVALID_ARGUMENT",
            "Function call is missing a thought_signature in functionCall parts.",
        ),
    )


def bad_schema(scene: FakeRequest) -> FakeError:
    name = scene.heard.tools[0].name if scene.heard.tools else "lookup"
    chat = scene.api.dialect == "openai_chat"
    field = "tools[0].function_declarations[0].parameters"
    text = (
        f"Invalid JSON payload received. Unknown name \"$schema\" at '{field}': Cannot find field."
    )
    details = [
        {"@type": f"{RPC}.BadRequest", "fieldViolations": [{"field": field, "description": text}]}
    ]
    return by_dialect(
        scene,
        anthropic_error(
            400,
            "invalid_request_error",
            "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft "
            "2020-12",
        ),
        openai_error(
            400,
            f"Invalid schema for function '{name}': In context=('properties', 'x'), array schema "
            "missing items.",
            "invalid_function_parameters",
            "invalid_request_error",
            param="tools[0].function.parameters" if chat else "tools[0].parameters",
        ),
        gemini_error(400, "INVALID_ARGUMENT", text, details=details),
    )
