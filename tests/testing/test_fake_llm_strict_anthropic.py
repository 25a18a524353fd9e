"""What the fake provider refuses and takes as Anthropic does, in its words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pictures import encoded, png
from tests.testing.fake_llm_strict_support import (
    TEXT,
    Bend,
    Case,
    add,
    answers,
    both,
    drop,
    header,
    model,
    put,
    refused,
    trouble,
)
from tests.testing.fake_llm_support import KEY, tools

PNG = encoded(png())


def uses(*ids: str, name: str = "read") -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": one, "name": name, "input": {}} for one in ids]
    return {"role": "assistant", "content": blocks}


def results(*ids: str, **more: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": one, "content": "x", **more} for one in ids
        ],
    }


def talk(*messages: dict[str, Any]) -> Bend:
    return put("messages", value=[{"role": "user", "content": "hi"}, *messages])


def image(kind: str = "image/png", data: str = PNG) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


PATTERN = "String should match pattern"
ORPHAN = "`tool_use` ids were found without `tool_result` blocks immediately after"
THINK = {"type": "enabled", "budget_tokens": 2000}
MARK = {"type": "ephemeral"}
NEW = header("anthropic-version", "2026-10-21")
ANTHROPIC: list[Case] = [
    ("no key", header("x-api-key", None), 401, "x-api-key header is required"),
    ("no version", header("anthropic-version", None), 400, "anthropic-version: header is required"),
    (
        "an unknown version",
        header("anthropic-version", "2024-01-01"),
        400,
        "is not a valid version",
    ),
    ("not JSON by its header", header("content-type", "text/plain"), 400, "content-type"),
    ("no model", put("model", value=""), 400, "model: String should have at least 1"),
    ("no messages", drop("messages"), 400, "messages: Field required"),
    ("no max_tokens", drop("max_tokens"), 400, "max_tokens: Field required"),
    (
        "max_tokens of 0",
        put("max_tokens", value=0),
        400,
        "max_tokens: Input should be greater than or equal to 1",
    ),
    (
        "max_tokens below 0",
        put("max_tokens", value=-1),
        400,
        "max_tokens: Input should be a valid integer",
    ),
    (
        "max_tokens as a text",
        put("max_tokens", value="9"),
        400,
        "max_tokens: Input should be a valid integer",
    ),
    (
        "an unknown field",
        put("max_output", value=1),
        400,
        "max_output: Extra inputs are not permitted",
    ),
    (
        "stream as a text",
        put("stream", value="yes"),
        400,
        "stream: Input should be a valid boolean",
    ),
    ("too hot", put("temperature", value=1.5), 400, "temperature: range: 0..1"),
    (
        "any heat in the new version",
        both(NEW, put("temperature", value=1.0)),
        400,
        "temperature: Extra inputs",
    ),
    ("top_p in the new version", both(NEW, put("top_p", value=0.9)), 400, "top_p: Extra inputs"),
    (
        "little to think with",
        put("thinking", value={"type": "enabled", "budget_tokens": 9}),
        400,
        "equal to 1024",
    ),
    (
        "more to think than to say",
        put("thinking", value=THINK),
        400,
        "must be greater than `thinking.budget_tokens`",
    ),
    (
        "thinking and cold",
        both(
            put("thinking", value=THINK),
            put("max_tokens", value=9000),
            put("temperature", value=0.5),
        ),
        400,
        "may only be set to 1",
    ),
    (
        "a thinking budget for a model that has its own",
        both(model("claude-opus-4-8"), put("thinking", value=THINK), put("max_tokens", value=9000)),
        400,
        "not supported for this model",
    ),
    (
        "calls without the thought before them",
        both(put("thinking", value=THINK), put("max_tokens", value=9000)),
        400,
        "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
    ),
    (
        "messages that are no list",
        put("messages", value={}),
        400,
        "messages: Input should be a valid list",
    ),
    ("no message", put("messages", value=[]), 400, "at least one message is required"),
    (
        "a message that is none",
        put("messages", 0, value="hi"),
        400,
        "messages.0: Input should be a valid dictionary",
    ),
    (
        "a message without a role",
        drop("messages", 0, "role"),
        400,
        "messages.0.role: Field required",
    ),
    (
        "a message without content",
        drop("messages", 0, "content"),
        400,
        "messages.0.content: Field required",
    ),
    (
        "a message with a name",
        put("messages", 0, "name", value="x"),
        400,
        "messages.0.name: Extra inputs",
    ),
    (
        "an unknown role",
        put("messages", 0, "role", value="tool"),
        400,
        "messages.0.role: Input should be 'user'",
    ),
    (
        "a reply first",
        put("messages", value=[{"role": "assistant", "content": "x"}]),
        400,
        "first message must use",
    ),
    (
        "a system message first",
        put("messages", value=[{"role": "system", "content": "x"}]),
        400,
        "first message must",
    ),
    (
        "a system message after a reply",
        talk({"role": "assistant", "content": "x"}, {"role": "system", "content": "y"}),
        400,
        "must come immediately after a `user` message",
    ),
    (
        "content that is a number",
        put("messages", 0, "content", value=1),
        400,
        "content: Input should be a valid list",
    ),
    (
        "no content",
        put("messages", 0, "content", value=[]),
        400,
        "all messages must have non-empty content",
    ),
    (
        "an empty text as content",
        put("messages", 0, "content", value=""),
        400,
        "must have non-empty content",
    ),
    (
        "an unknown block",
        put("messages", 0, "content", value=[{"type": "x"}]),
        400,
        "does not match any of the expected",
    ),
    (
        "a block that is none",
        put("messages", 0, "content", value=["x"]),
        400,
        "does not match any of the expected",
    ),
    (
        "a block with more",
        put("messages", 0, "content", value=[{**TEXT, "id": 1}]),
        400,
        "text.id: Extra inputs",
    ),
    (
        "a call of the user",
        put("messages", 0, "content", value=uses("a")["content"]),
        400,
        "only be in `assistant`",
    ),
    (
        "a result of the model",
        talk({"role": "assistant", "content": results("a")["content"]}),
        400,
        "only be in `user`",
    ),
    (
        "a text that is none",
        put("messages", 0, "content", value=[{"type": "text"}]),
        400,
        "text.text: Input should be",
    ),
    (
        "an empty text block",
        put("messages", 0, "content", value=[{**TEXT, "text": ""}]),
        400,
        "must be non-empty",
    ),
    (
        "a blank text block",
        put("messages", 0, "content", value=[{**TEXT, "text": " \n"}]),
        400,
        "non-whitespace text",
    ),
    (
        "citations of the user in the new version",
        both(NEW, put("messages", 0, "content", value=[{**TEXT, "citations": [{}]}])),
        400,
        "citations: Extra inputs",
    ),
    ("a bad call id", talk(uses("a b"), results("a b")), 400, f"tool_use.id: {PATTERN}"),
    (
        "no call id",
        talk({"role": "assistant", "content": [{"type": "tool_use"}]}),
        400,
        f"tool_use.id: {PATTERN}",
    ),
    (
        "a bad call name",
        talk(uses("a", name="functions.read"), results("a")),
        400,
        f"tool_use.name: {PATTERN}",
    ),
    ("no call name", talk(uses("a", name=""), results("a")), 400, f"tool_use.name: {PATTERN}"),
    (
        "arguments as a text",
        put("messages", 1, "content", 0, "input", value="{}"),
        400,
        "tool_use.input: Input should be a valid dictionary",
    ),
    (
        "the same call id again",
        talk(uses("a"), results("a"), uses("a"), results("a")),
        400,
        "ids must be unique",
    ),
    ("an orphan call at the end", talk(uses("a")), 400, f"messages.1: {ORPHAN}: a."),
    ("an orphan call of two", talk(uses("a", "b"), results("a")), 400, f"{ORPHAN}: b."),
    (
        "a text before the results",
        talk(uses("a"), {"role": "user", "content": [TEXT, *results("a")["content"]]}),
        400,
        ORPHAN,
    ),
    (
        "a message before the results",
        talk(uses("a"), {"role": "user", "content": "x"}, results("a")),
        400,
        ORPHAN,
    ),
    (
        "a reply before the results",
        talk(uses("a"), {"role": "assistant", "content": "x"}),
        400,
        ORPHAN,
    ),
    (
        "a result without a call",
        talk(results("a")),
        400,
        "messages.1.content.0: unexpected `tool_use_id` found",
    ),
    (
        "a result of an older call",
        talk(uses("a"), results("a"), uses("b"), results("b", "a")),
        400,
        "unexpected `tool_use_id`",
    ),
    (
        "a result without an id",
        talk(uses("a"), {"role": "user", "content": [{"type": "tool_result"}]}),
        400,
        "Field required",
    ),
    (
        "two results for one call",
        talk(uses("a"), results("a", "a")),
        400,
        "each tool_use must have a single result",
    ),
    (
        "a result that is a number",
        put("messages", 2, "content", 0, "content", value=1),
        400,
        "tool_result.content: Input",
    ),
    (
        "an empty text in a result",
        put("messages", 2, "content", 0, "content", value=[{"type": "text", "text": ""}]),
        400,
        "text content blocks must be non-empty",
    ),
    (
        "a call in a result",
        put("messages", 2, "content", 0, "content", value=uses("z")["content"]),
        400,
        "does not match",
    ),
    (
        "an image in an error",
        talk(uses("a"), results("a", is_error=True, content=[image()])),
        400,
        "must be type `text`",
    ),
    (
        "an image of no kind",
        put("messages", 0, "content", value=[image("image/bmp")]),
        400,
        "base64.media_type",
    ),
    (
        "an image without data",
        put("messages", 0, "content", value=[image(data="")]),
        400,
        "image.source: Input tag",
    ),
    (
        "a reply at the end",
        talk({"role": "assistant", "content": "And"}),
        400,
        "does not support assistant message prefill",
    ),
    (
        "a thought with another signature",
        talk(
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "x", "signature": "y"}, TEXT],
            }
        ),
        400,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    (
        "a system prompt that is a number",
        put("system", value=1),
        400,
        "system: Input should be a valid list",
    ),
    (
        "a system block that is no text",
        put("system", value=[image()]),
        400,
        "system.0: Input should be a text block",
    ),
    (
        "an empty system block",
        put("system", value=[{**TEXT, "text": ""}]),
        400,
        "system: text content blocks must be",
    ),
    (
        "too many marks",
        put("messages", 0, "content", value=[{**TEXT, "cache_control": MARK}] * 5),
        400,
        "Found 5.",
    ),
    (
        "too many marks in all places",
        both(
            put("cache_control", value=MARK),
            put("system", value=[{**TEXT, "cache_control": MARK}] * 2),
            put("tools", 0, "cache_control", value=MARK),
            put("messages", 0, "content", value=[{**TEXT, "cache_control": MARK}]),
        ),
        400,
        "Found 5.",
    ),
    ("tools that are no list", put("tools", value={}), 400, "tools: Input should be a valid list"),
    (
        "a tool that is none",
        put("tools", 0, value="read"),
        400,
        "tools.0: Input should be a valid dictionary",
    ),
    (
        "a tool with more",
        put("tools", 0, "parameters", value={}),
        400,
        "tools.0.custom.parameters: Extra inputs",
    ),
    ("a tool without a name", drop("tools", 0, "name"), 400, "tools.0.custom.name: Field required"),
    (
        "a tool without a schema",
        drop("tools", 0, "input_schema"),
        400,
        "tools.0.custom.input_schema: Field required",
    ),
    (
        "a bad tool name",
        put("tools", 0, "name", value="a.b"),
        400,
        f"tools.0.custom.name: {PATTERN}",
    ),
    (
        "a long tool name",
        put("tools", 0, "name", value="a" * 129),
        400,
        f"tools.0.custom.name: {PATTERN}",
    ),
    (
        "two tools of one name",
        add("tools", value=tools("anthropic")[0]),
        400,
        "Tool names must be unique",
    ),
    (
        "a schema that is none",
        put("tools", 0, "input_schema", value=[]),
        400,
        "input_schema: Input should be a valid dict",
    ),
    (
        "a schema without a type",
        put("tools", 0, "input_schema", value={}),
        400,
        "input_schema.type: Field required",
    ),
    (
        "a schema of a text",
        put("tools", 0, "input_schema", value={"type": "string"}),
        400,
        "Input should be 'object'",
    ),
    (
        "a choice at the top of a schema",
        put("tools", 0, "input_schema", value={"type": "object", "anyOf": [{}]}),
        400,
        "does not support oneOf, allOf, or anyOf at the top level",
    ),
    (
        "a schema that is not JSON schema",
        put(
            "tools",
            0,
            "input_schema",
            value={"type": "object", "properties": {"x": {"type": "text"}}},
        ),
        400,
        "JSON schema is invalid",
    ),
    (
        "an unknown tool choice",
        put("tool_choice", value={"type": "required"}),
        400,
        "tool_choice: Input tag",
    ),
    (
        "a choice without tools",
        both(drop("tools"), put("tool_choice", value={"type": "any"})),
        400,
        "while providing tools",
    ),
    (
        "a choice of no tool",
        put("tool_choice", value={"type": "tool", "name": "x"}),
        400,
        "Tool 'x' not found",
    ),
    (
        "a type that no rule asked about",
        put("thinking", value="much"),
        400,
        "value of the wrong type",
    ),
]


@refused("anthropic", ANTHROPIC)
def test_anthropic_refuses(bend: Bend, status: int, needle: str) -> None:
    for reply, message in answers("anthropic", bend):
        assert reply == status and needle in message


GOOD_ANTHROPIC: dict[str, Bend] = {
    "a bearer for a key": both(header("x-api-key", None), header("authorization", f"Bearer {KEY}")),
    "the new version": NEW,
    "a system message after the user": talk({"role": "system", "content": "x"}),
    "a text behind the results": talk(
        uses("a"), {"role": "user", "content": [*results("a")["content"], TEXT]}
    ),
    "results in two messages": talk(uses("a", "b"), results("a"), results("b")),
    "results in another order": talk(uses("a", "b"), results("b", "a")),
    "an empty result": put("messages", 2, "content", 0, "content", value=""),
    "a result without content": drop("messages", 2, "content", 0, "content"),
    "pictures": put(
        "messages",
        0,
        "content",
        value=[image(), {"type": "image", "source": {"type": "url", "url": "x"}}],
    ),
    "a picture as a result": put("messages", 2, "content", 0, "content", value=[TEXT, image()]),
    "tools of the server": add(
        "tools", value={"type": "web_search_20250305", "name": "web_search"}
    ),
    "four marks": put("messages", 0, "content", value=[{**TEXT, "cache_control": MARK}] * 4),
    "a forced tool": put("tool_choice", value={"type": "tool", "name": "read"}),
    "a redacted thought": talk(
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, TEXT]},
        {"role": "user", "content": "y"},
    ),
}


@pytest.mark.parametrize("name", GOOD_ANTHROPIC)
def test_anthropic_takes(name: str) -> None:
    assert trouble("anthropic", GOOD_ANTHROPIC[name]) == []
