"""What the fake provider refuses and takes as OpenAI's chat completions do, in their words."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.pictures import encoded, png
from tests.testing.fake_llm_strict_support import (
    TEXT,
    Bend,
    Case,
    add,
    answers,
    both,
    drop,
    model,
    openai,
    put,
    refused,
    schema,
    told,
    trouble,
)
from tests.testing.fake_llm_support import good, send

DATA = f"data:image/png;base64,{encoded(png())}"


def chat(*messages: dict[str, Any]) -> Bend:
    return put("messages", value=[{"role": "user", "content": "hi"}, *messages])


def asks(*ids: Any, name: Any = "read", args: Any = "{}") -> dict[str, Any]:
    calls = [
        {"id": one, "type": "function", "function": {"name": name, "arguments": args}}
        for one in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


CHAT: list[Case] = [
    *openai("openai_chat", "tools[0].function"),
    (
        "an unknown field",
        put("max_output", value=1),
        400,
        "Unrecognized request argument supplied: max_output",
    ),
    (
        "max_tokens of 0",
        put("max_tokens", value=0),
        400,
        "integer below minimum value. Expected a value >= 1, but got 0",
    ),
    (
        "max_tokens as a text",
        put("max_tokens", value="9"),
        400,
        "Invalid type for 'max_tokens': expected an integer",
    ),
    (
        "a new limit of 0",
        put("max_completion_tokens", value=0),
        400,
        "Invalid 'max_completion_tokens': integer below",
    ),
    (
        "two limits",
        both(put("max_tokens", value=9), put("max_completion_tokens", value=9)),
        400,
        "at the same time is not supported",
    ),
    (
        "the old limit for a new model",
        both(model("gpt-5.2"), put("max_tokens", value=9)),
        400,
        "Use 'max_completion_tokens'",
    ),
    ("no tool in the list", put("tools", value=[]), 400, "Invalid 'tools': empty array"),
    (
        "a tool of another type",
        put("tools", 0, "type", value="x"),
        400,
        "Invalid value: 'x'. Supported values are",
    ),
    (
        "a tool without a function",
        drop("tools", 0, "function"),
        400,
        "Missing required parameter: 'tools[0].function'",
    ),
    (
        "a tool with more",
        put("tools", 0, "name", value="x"),
        400,
        "Unknown parameter: 'tools[0].name'",
    ),
    (
        "a function with more",
        put("tools", 0, "function", "input", value=1),
        400,
        "'tools[0].function.input'",
    ),
    (
        "a choice without tools",
        both(drop("tools"), put("tool_choice", value="auto")),
        400,
        "'tool_choice' is only allowed",
    ),
    (
        "parallel calls without tools",
        both(drop("tools"), put("parallel_tool_calls", value=True)),
        400,
        "'parallel_tool_calls' is only allowed",
    ),
    ("no messages", drop("messages"), 400, "Missing required parameter: 'messages'"),
    ("messages that are no list", put("messages", value="hi"), 400, "Invalid type for 'messages'"),
    ("no message", put("messages", value=[]), 400, "Invalid 'messages': empty array"),
    (
        "a message that is none",
        put("messages", 0, value="hi"),
        400,
        "Invalid type for 'messages[0]'",
    ),
    (
        "a message without a role",
        drop("messages", 0, "role"),
        400,
        "Missing required parameter: 'messages[0].role'",
    ),
    (
        "an unknown role",
        put("messages", 0, "role", value="model"),
        400,
        "Invalid value: 'model'. Supported values are: 'system'",
    ),
    (
        "a message with more",
        put("messages", 0, "id", value="x"),
        400,
        "Unknown parameter: 'messages[0].id'",
    ),
    (
        "no content",
        drop("messages", 0, "content"),
        400,
        "Invalid value for 'content': expected a string, got null",
    ),
    (
        "content that is a number",
        put("messages", 0, "content", value=1),
        400,
        "Invalid type for 'messages[0].content'",
    ),
    (
        "content without parts",
        put("messages", 0, "content", value=[]),
        400,
        "'messages[0].content': empty array",
    ),
    (
        "an unknown part",
        put("messages", 0, "content", value=[{"type": "x"}]),
        400,
        "Invalid value: 'x'. Supported",
    ),
    (
        "a part without its text",
        put("messages", 0, "content", value=[{"type": "text"}]),
        400,
        "Missing required parameter",
    ),
    (
        "an image without an address",
        put("messages", 1, "content", value=[{"type": "image_url"}]),
        400,
        "image_url.url",
    ),
    (
        "an image without data",
        put(
            "messages",
            1,
            "content",
            value=[{"type": "image_url", "image_url": {"url": "data:image/png"}}],
        ),
        400,
        "Expected a valid URL",
    ),
    (
        "an image in a result",
        put(
            "messages",
            3,
            "content",
            value=[{"type": "image_url", "image_url": {"url": "http://x"}}],
        ),
        400,
        "Invalid value: 'image_url'",
    ),
    (
        "a reply without anything",
        chat({"role": "assistant", "content": None}),
        400,
        "expected a string, got null",
    ),
    (
        "a reply with more",
        chat({"role": "assistant", "content": "x", "thinking": ""}),
        400,
        "'messages[1].thinking'",
    ),
    (
        "calls that are no list",
        chat({"role": "assistant", "tool_calls": "x"}),
        400,
        "Invalid type for 'messages[1].tool_calls'",
    ),
    (
        "no calls",
        chat({"role": "assistant", "content": "x", "tool_calls": []}),
        400,
        "'messages[1].tool_calls': empty array",
    ),
    (
        "a call that is none",
        chat({"role": "assistant", "tool_calls": ["x"]}),
        400,
        "Invalid type for 'messages[1].tool_calls[0]'",
    ),
    (
        "no call id",
        chat(asks(None)),
        400,
        "Missing required parameter: 'messages[1].tool_calls[0].id'",
    ),
    ("an empty call id", chat(asks(""), told("")), 400, "Duplicate value for 'tool_call_id'"),
    (
        "a long call id",
        chat(asks("a" * 41), told("a" * 41)),
        400,
        "string too long. Expected a string with maximum length 40",
    ),
    (
        "the same call id twice",
        chat(asks("a", "a"), told("a"), told("a")),
        400,
        "Duplicate value for 'tool_call_id'",
    ),
    (
        "a call of another type",
        put("messages", 2, "tool_calls", 0, "type", value="x"),
        400,
        "Invalid value: 'x'",
    ),
    (
        "a call of nothing",
        drop("messages", 2, "tool_calls", 0, "function"),
        400,
        "tool_calls[0].function'",
    ),
    (
        "a bad call name",
        chat(asks("a", name="functions.read"), told("a")),
        400,
        "string does not match pattern",
    ),
    (
        "no call name",
        chat(asks("a", name=""), told("a")),
        400,
        "tool_calls[0].function.name': string does not match",
    ),
    (
        "arguments as an object",
        chat(asks("a", args={}), told("a")),
        400,
        "Invalid type for 'messages[1].tool_calls[0].function.arg",
    ),
    ("an orphan call at the end", chat(asks("a")), 400, "did not have response messages: a"),
    (
        "an orphan call of two",
        chat(asks("a", "b"), told("a")),
        400,
        "did not have response messages: b",
    ),
    (
        "a message before the results",
        chat(asks("a"), {"role": "user", "content": "x"}, told("a")),
        400,
        "did not have response",
    ),
    (
        "a result without a call",
        chat(told("a")),
        400,
        "must be a response to a preceeding message with 'tool_calls'",
    ),
    (
        "a result of another call",
        chat(asks("a"), told("b")),
        400,
        "'tool_call_id' of 'b' not found",
    ),
    (
        "two results for one call",
        chat(asks("a"), told("a"), told("a")),
        400,
        "'tool_call_id' of 'a' not found",
    ),
    (
        "a result without an id",
        chat(asks("a"), {"role": "tool", "content": "x"}),
        400,
        "'messages[2].tool_call_id'",
    ),
    (
        "a result with more",
        chat(asks("a"), {**told("a"), "is_error": True}),
        400,
        "Unknown parameter: 'messages[2].is_error'",
    ),
    (
        "a result without content",
        chat(asks("a"), {"role": "tool", "tool_call_id": "a"}),
        400,
        "expected a string, got null",
    ),
]


@refused("openai_chat", CHAT)
def test_chat_refuses(bend: Bend, status: int, needle: str) -> None:
    for reply, message in answers("openai_chat", bend):
        assert reply == status and needle in message


def test_chat_refuses_stream_options_without_a_stream() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            reply = await send(llm, good("openai_chat", stream_options={"include_usage": True}))
            assert (reply.status, reply.json["error"]["param"]) == (400, "stream_options")

    asyncio.run(story())


GOOD_CHAT: dict[str, Bend] = {
    "results in another order": chat(asks("a", "b"), told("b"), told("a")),
    "ids that were used in an earlier turn": chat(asks("a"), told("a"), asks("a"), told("a")),
    "a developer": put("messages", 0, "role", value="developer"),
    "parts": put(
        "messages",
        1,
        "content",
        value=[TEXT, {"type": "image_url", "image_url": {"url": DATA}}],
    ),
    "an image by its address": put(
        "messages", 1, "content", value=[{"type": "image_url", "image_url": {"url": "http://x"}}]
    ),
    "a tool of the custom type": add("tools", value={"type": "custom", "custom": {"name": "x"}}),
    "no parameters": schema("openai_chat", None),
    "heat without thinking": both(
        model("gpt-6"), put("temperature", value=1), put("reasoning_effort", value="none")
    ),
    "a refusal": chat({"role": "assistant", "refusal": "no"}, {"role": "user", "content": "x"}),
    "a strict schema": schema(
        "openai_chat",
        {
            "type": "object",
            "properties": {"x": {"anyOf": [{"type": "null"}]}},
            "required": ["x"],
            "additionalProperties": False,
        },
        strict=True,
    ),
}


@pytest.mark.parametrize("name", GOOD_CHAT)
def test_chat_takes(name: str) -> None:
    assert trouble("openai_chat", GOOD_CHAT[name]) == []
