"""The fake provider refuses what the real ones refuse, in their words and shapes, and remembers that it did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from retinue.testing.fake_llm import FakeLLM, Settings
from tests.testing.fake_llm_support import ALL, KEY, SCHEMA, Got, Post, good, raw, send, tools

Bend = Callable[[Post], None]
Case = tuple[str, Bend, int, str]
TEXT = {"type": "text", "text": "x"}


def put(*path: str | int, value: Any) -> Bend:
    """A bend that sets one place in the body."""

    def bend(post: Post) -> None:
        at: Any = post.body
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value

    return bend


def drop(*path: str | int) -> Bend:
    def bend(post: Post) -> None:
        at: Any = post.body
        for step in path[:-1]:
            at = at[step]
        del at[path[-1]]

    return bend


def header(name: str, value: str | None) -> Bend:
    def bend(post: Post) -> None:
        post.headers.pop(name, None)
        if value is not None:
            post.headers[name] = value

    return bend


def both(*bends: Bend) -> Bend:
    def bend(post: Post) -> None:
        for one in bends:
            one(post)

    return bend


def add(*path: str | int, value: Any) -> Bend:
    """A bend that appends to a list in the body."""

    def bend(post: Post) -> None:
        at: Any = post.body
        for step in path:
            at = at[step]
        at.append(value)

    return bend


def model(name: str) -> Bend:
    def bend(post: Post) -> None:
        post.model = name

    return bend


def message_of(dialect: str, got: Got) -> str:
    """The message, out of exactly the provider's shape."""
    told = got.json
    if dialect == "anthropic":
        assert set(told) == {"type", "error", "request_id"}
        assert told["type"] == "error"
        assert {"type", "message"} <= set(told["error"])
        assert got.headers["request-id"] == told["request_id"]
    elif dialect == "gemini":
        assert set(told) == {"error"}
        assert {"code", "message", "status"} <= set(told["error"])
        assert told["error"]["code"] == got.status
        assert told["error"]["status"] in ("INVALID_ARGUMENT", "PERMISSION_DENIED", "NOT_FOUND", "UNIMPLEMENTED")
    else:
        assert set(told) == {"error"}
        assert set(told["error"]) == {"message", "type", "param", "code"}
        assert told["error"]["type"] == "invalid_request_error"
    return str(told["error"]["message"])


def refused(dialect: str, cases: list[Case]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    ids = [name for name, _, _, _ in cases]
    assert len(set(ids)) == len(ids)
    return pytest.mark.parametrize(("bend", "status", "needle"), [case[1:] for case in cases], ids=ids)


def check(dialect: str, bend: Bend, status: int, needle: str) -> None:
    """Good as it is, refused when it is bent, and remembered."""

    async def story() -> None:
        async with FakeLLM() as llm:
            for stream in (False, True):
                post = good(dialect, turns=2, stream=stream)
                bend(post)
                got = await send(llm, post)
                assert got.status == status, got.body
                assert needle in message_of(dialect, got)
            assert [(v.n, v.dialect, v.status) for v in llm.violations] == [(1, dialect, status), (2, dialect, status)]
            assert needle in llm.violations[0].message
            assert llm.requests == []

    asyncio.run(story())


def takes(dialect: str, bend: Bend) -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            post = good(dialect, turns=2)
            bend(post)
            got = await send(llm, post)
            assert got.status == 200, got.body
            assert llm.violations == []

    asyncio.run(story())


def uses(*ids: str, name: str = "read") -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": one, "name": name, "input": {}} for one in ids]
    return {"role": "assistant", "content": blocks}


def results(*ids: str, **more: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": one, "content": "x", **more} for one in ids],
    }


def talk(*messages: dict[str, Any]) -> Bend:
    return put("messages", value=[{"role": "user", "content": "hi"}, *messages])


def image(kind: str = "image/png", data: str = "AAAA") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


PATTERN = "String should match pattern"
ORPHAN = "`tool_use` ids were found without `tool_result` blocks immediately after"
THINK = {"type": "enabled", "budget_tokens": 2000}
MARK = {"type": "ephemeral"}
NEW = header("anthropic-version", "2026-10-21")
ANTHROPIC: list[Case] = [
    ("no key", header("x-api-key", None), 401, "x-api-key header is required"),
    ("no version", header("anthropic-version", None), 400, "anthropic-version: header is required"),
    ("an unknown version", header("anthropic-version", "2024-01-01"), 400, "is not a valid version"),
    ("not JSON by its header", header("content-type", "text/plain"), 400, "content-type"),
    ("no model", put("model", value=""), 400, "model: String should have at least 1"),
    ("no messages", drop("messages"), 400, "messages: Field required"),
    ("no max_tokens", drop("max_tokens"), 400, "max_tokens: Field required"),
    ("max_tokens of 0", put("max_tokens", value=0), 400, "max_tokens: Input should be greater than or equal to 1"),
    ("max_tokens below 0", put("max_tokens", value=-1), 400, "max_tokens: Input should be a valid integer"),
    ("max_tokens as a text", put("max_tokens", value="9"), 400, "max_tokens: Input should be a valid integer"),
    ("an unknown field", put("max_output", value=1), 400, "max_output: Extra inputs are not permitted"),
    ("stream as a text", put("stream", value="yes"), 400, "stream: Input should be a valid boolean"),
    ("too hot", put("temperature", value=1.5), 400, "temperature: range: 0..1"),
    ("any heat in the new version", both(NEW, put("temperature", value=1.0)), 400, "temperature: Extra inputs"),
    ("top_p in the new version", both(NEW, put("top_p", value=0.9)), 400, "top_p: Extra inputs"),
    ("little to think with", put("thinking", value={"type": "enabled", "budget_tokens": 9}), 400, "equal to 1024"),
    ("more to think than to say", put("thinking", value=THINK), 400, "must be greater than `thinking.budget_tokens`"),
    (
        "thinking and cold",
        both(put("thinking", value=THINK), put("max_tokens", value=9000), put("temperature", value=0.5)),
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
    ("messages that are no list", put("messages", value={}), 400, "messages: Input should be a valid list"),
    ("no message", put("messages", value=[]), 400, "at least one message is required"),
    ("a message that is none", put("messages", 0, value="hi"), 400, "messages.0: Input should be a valid dictionary"),
    ("a message without a role", drop("messages", 0, "role"), 400, "messages.0.role: Field required"),
    ("a message without content", drop("messages", 0, "content"), 400, "messages.0.content: Field required"),
    ("a message with a name", put("messages", 0, "name", value="x"), 400, "messages.0.name: Extra inputs"),
    ("an unknown role", put("messages", 0, "role", value="tool"), 400, "messages.0.role: Input should be 'user'"),
    ("a reply first", put("messages", value=[{"role": "assistant", "content": "x"}]), 400, "first message must use"),
    ("a system message first", put("messages", value=[{"role": "system", "content": "x"}]), 400, "first message must"),
    (
        "a system message after a reply",
        talk({"role": "assistant", "content": "x"}, {"role": "system", "content": "y"}),
        400,
        "must come immediately after a `user` message",
    ),
    ("content that is a number", put("messages", 0, "content", value=1), 400, "content: Input should be a valid list"),
    ("no content", put("messages", 0, "content", value=[]), 400, "all messages must have non-empty content"),
    ("an empty text as content", put("messages", 0, "content", value=""), 400, "must have non-empty content"),
    (
        "an unknown block",
        put("messages", 0, "content", value=[{"type": "x"}]),
        400,
        "does not match any of the expected",
    ),
    ("a block that is none", put("messages", 0, "content", value=["x"]), 400, "does not match any of the expected"),
    ("a block with more", put("messages", 0, "content", value=[{**TEXT, "id": 1}]), 400, "text.id: Extra inputs"),
    ("a call of the user", put("messages", 0, "content", value=uses("a")["content"]), 400, "only be in `assistant`"),
    (
        "a result of the model",
        talk({"role": "assistant", "content": results("a")["content"]}),
        400,
        "only be in `user`",
    ),
    ("a text that is none", put("messages", 0, "content", value=[{"type": "text"}]), 400, "text.text: Input should be"),
    ("an empty text block", put("messages", 0, "content", value=[{**TEXT, "text": ""}]), 400, "must be non-empty"),
    ("a blank text block", put("messages", 0, "content", value=[{**TEXT, "text": " \n"}]), 400, "non-whitespace text"),
    (
        "citations of the user in the new version",
        both(NEW, put("messages", 0, "content", value=[{**TEXT, "citations": [{}]}])),
        400,
        "citations: Extra inputs",
    ),
    ("a bad call id", talk(uses("a b"), results("a b")), 400, f"tool_use.id: {PATTERN}"),
    ("no call id", talk({"role": "assistant", "content": [{"type": "tool_use"}]}), 400, f"tool_use.id: {PATTERN}"),
    ("a bad call name", talk(uses("a", name="functions.read"), results("a")), 400, f"tool_use.name: {PATTERN}"),
    ("no call name", talk(uses("a", name=""), results("a")), 400, f"tool_use.name: {PATTERN}"),
    (
        "arguments as a text",
        put("messages", 1, "content", 0, "input", value="{}"),
        400,
        "tool_use.input: Input should be a valid dictionary",
    ),
    ("the same call id again", talk(uses("a"), results("a"), uses("a"), results("a")), 400, "ids must be unique"),
    ("an orphan call at the end", talk(uses("a")), 400, f"messages.1: {ORPHAN}: a."),
    ("an orphan call of two", talk(uses("a", "b"), results("a")), 400, f"{ORPHAN}: b."),
    (
        "a text before the results",
        talk(uses("a"), {"role": "user", "content": [TEXT, *results("a")["content"]]}),
        400,
        ORPHAN,
    ),
    ("a message before the results", talk(uses("a"), {"role": "user", "content": "x"}, results("a")), 400, ORPHAN),
    ("a reply before the results", talk(uses("a"), {"role": "assistant", "content": "x"}), 400, ORPHAN),
    ("a result without a call", talk(results("a")), 400, "messages.1.content.0: unexpected `tool_use_id` found"),
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
    ("two results for one call", talk(uses("a"), results("a", "a")), 400, "each tool_use must have a single result"),
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
    ("an image of no kind", put("messages", 0, "content", value=[image("image/bmp")]), 400, "base64.media_type"),
    ("an image without data", put("messages", 0, "content", value=[image(data="")]), 400, "image.source: Input tag"),
    (
        "a reply at the end",
        talk({"role": "assistant", "content": "And"}),
        400,
        "does not support assistant message prefill",
    ),
    (
        "a thought with another signature",
        talk({"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}, TEXT]}),
        400,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    ("a system prompt that is a number", put("system", value=1), 400, "system: Input should be a valid list"),
    ("a system block that is no text", put("system", value=[image()]), 400, "system.0: Input should be a text block"),
    ("an empty system block", put("system", value=[{**TEXT, "text": ""}]), 400, "system: text content blocks must be"),
    ("too many marks", put("messages", 0, "content", value=[{**TEXT, "cache_control": MARK}] * 5), 400, "Found 5."),
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
    ("a tool that is none", put("tools", 0, value="read"), 400, "tools.0: Input should be a valid dictionary"),
    ("a tool with more", put("tools", 0, "parameters", value={}), 400, "tools.0.custom.parameters: Extra inputs"),
    ("a tool without a name", drop("tools", 0, "name"), 400, "tools.0.custom.name: Field required"),
    ("a tool without a schema", drop("tools", 0, "input_schema"), 400, "tools.0.custom.input_schema: Field required"),
    ("a bad tool name", put("tools", 0, "name", value="a.b"), 400, f"tools.0.custom.name: {PATTERN}"),
    ("a long tool name", put("tools", 0, "name", value="a" * 129), 400, f"tools.0.custom.name: {PATTERN}"),
    ("two tools of one name", add("tools", value=tools("anthropic")[0]), 400, "Tool names must be unique"),
    (
        "a schema that is none",
        put("tools", 0, "input_schema", value=[]),
        400,
        "input_schema: Input should be a valid dict",
    ),
    ("a schema without a type", put("tools", 0, "input_schema", value={}), 400, "input_schema.type: Field required"),
    ("a schema of a text", put("tools", 0, "input_schema", value={"type": "string"}), 400, "Input should be 'object'"),
    (
        "a choice at the top of a schema",
        put("tools", 0, "input_schema", value={"type": "object", "anyOf": [{}]}),
        400,
        "does not support oneOf, allOf, or anyOf at the top level",
    ),
    (
        "a schema that is not JSON schema",
        put("tools", 0, "input_schema", value={"type": "object", "properties": {"x": {"type": "text"}}}),
        400,
        "JSON schema is invalid",
    ),
    ("an unknown tool choice", put("tool_choice", value={"type": "required"}), 400, "tool_choice: Input tag"),
    (
        "a choice without tools",
        both(drop("tools"), put("tool_choice", value={"type": "any"})),
        400,
        "while providing tools",
    ),
    ("a choice of no tool", put("tool_choice", value={"type": "tool", "name": "x"}), 400, "Tool 'x' not found"),
    ("a type that no rule asked about", put("thinking", value="much"), 400, "value of the wrong type"),
]


@refused("anthropic", ANTHROPIC)
def test_anthropic_refuses(bend: Bend, status: int, needle: str) -> None:
    check("anthropic", bend, status, needle)


THOUGHT = {"type": "thinking", "thinking": "I think about what was asked."}
GOOD_ANTHROPIC: dict[str, Bend] = {
    "a bearer for a key": both(header("x-api-key", None), header("authorization", f"Bearer {KEY}")),
    "the new version": NEW,
    "a system message after the user": talk({"role": "system", "content": "x"}),
    "a text behind the results": talk(uses("a"), {"role": "user", "content": [*results("a")["content"], TEXT]}),
    "results in two messages": talk(uses("a", "b"), results("a"), results("b")),
    "results in another order": talk(uses("a", "b"), results("b", "a")),
    "an empty result": put("messages", 2, "content", 0, "content", value=""),
    "a result without content": drop("messages", 2, "content", 0, "content"),
    "pictures": put(
        "messages", 0, "content", value=[image(), {"type": "image", "source": {"type": "url", "url": "x"}}]
    ),
    "a picture as a result": put("messages", 2, "content", 0, "content", value=[TEXT, image()]),
    "tools of the server": add("tools", value={"type": "web_search_20250305", "name": "web_search"}),
    "four marks": put("messages", 0, "content", value=[{**TEXT, "cache_control": MARK}] * 4),
    "a forced tool": put("tool_choice", value={"type": "tool", "name": "read"}),
    "a redacted thought": talk(
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}, TEXT]},
        {"role": "user", "content": "y"},
    ),
}


@pytest.mark.parametrize("name", GOOD_ANTHROPIC)
def test_anthropic_takes(name: str) -> None:
    takes("anthropic", GOOD_ANTHROPIC[name])


def chat(*messages: dict[str, Any]) -> Bend:
    return put("messages", value=[{"role": "user", "content": "hi"}, *messages])


def asks(*ids: Any, name: Any = "read", args: Any = "{}") -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": name, "arguments": args}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def told(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


def schema(dialect: str, value: Any, **more: Any) -> Bend:
    def bend(post: Post) -> None:
        post.body["tools"] = tools(dialect, schema=value)
        at = post.body["tools"][0]
        (at["function"] if dialect == "openai_chat" else at).update(more)

    return bend


def named(dialect: str, name: Any) -> Bend:
    return lambda post: post.body.update(tools=tools(dialect, name))


def openai(dialect: str, at: str) -> list[Case]:
    """What both dialects of OpenAI refuse; `at` is where a function is described."""
    odd = {"type": "object", "properties": {"x": {"type": "array"}}}
    inner = {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "array"}}}}
    loose = {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": False}
    bad = "Invalid schema for function 'read': "
    return [
        ("no key", header("authorization", None), 401, "You didn't provide an API key"),
        ("a key that is no bearer", header("authorization", "Basic x"), 401, "You didn't provide an API key"),
        ("not JSON by its header", header("content-type", "text/plain"), 400, "could not parse the JSON body"),
        ("no model", put("model", value=""), 400, "you must provide a model parameter"),
        ("stream as a text", put("stream", value="yes"), 400, "Invalid type for 'stream': expected a boolean"),
        ("too hot", put("temperature", value=2.5), 400, "Invalid 'temperature'"),
        (
            "heat while thinking",
            both(model("gpt-6.1"), put("temperature", value=1)),
            400,
            "'temperature' is not supported",
        ),
        ("top_p while thinking", both(model("o3"), put("top_p", value=1)), 400, "'top_p' is not supported"),
        ("tools that are no list", put("tools", value={"a": 1}), 400, "Invalid type for 'tools'"),
        ("a tool that is none", put("tools", 0, value="read"), 400, "Invalid type for 'tools[0]'"),
        ("a tool without a type", drop("tools", 0, "type"), 400, "Missing required parameter: 'tools[0].type'"),
        ("too many tools", put("tools", value=tools(dialect) * 129), 400, "array too long"),
        ("a bad tool name", named(dialect, "a.b"), 400, f"Invalid '{at}.name': string does not match pattern"),
        ("a long tool name", named(dialect, "a" * 65), 400, f"Invalid '{at}.name': string too long"),
        ("a tool name that is none", named(dialect, 7), 400, f"Invalid type for '{at}.name'"),
        ("a tool without a name", named(dialect, None), 400, f"Missing required parameter: '{at}.name'"),
        ("a schema that is none", schema(dialect, [1]), 400, f"{bad}[1] is not of type"),
        ("a schema of a text", schema(dialect, {"type": "string"}), 400, f"{bad}schema must be a JSON Schema of 'type"),
        (
            "a schema of no type",
            schema(dialect, {"type": "object", "required": "x"}),
            400,
            f"{bad}In context=('required',)",
        ),
        (
            "an array of what",
            schema(dialect, odd),
            400,
            f"{bad}In context=('properties', 'x'), array schema missing items",
        ),
        ("an array of arrays of what", schema(dialect, inner), 400, "array schema missing items"),
        (
            "open, but strict",
            schema(dialect, SCHEMA, strict=True),
            400,
            "'additionalProperties' is required to be supplied",
        ),
        ("optional, but strict", schema(dialect, loose, strict=True), 400, "Missing 'x'"),
    ]


CHAT: list[Case] = [
    *openai("openai_chat", "tools[0].function"),
    ("an unknown field", put("max_output", value=1), 400, "Unrecognized request argument supplied: max_output"),
    (
        "max_tokens of 0",
        put("max_tokens", value=0),
        400,
        "integer below minimum value. Expected a value >= 1, but got 0",
    ),
    ("max_tokens as a text", put("max_tokens", value="9"), 400, "Invalid type for 'max_tokens': expected an integer"),
    ("a new limit of 0", put("max_completion_tokens", value=0), 400, "Invalid 'max_completion_tokens': integer below"),
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
    ("a tool of another type", put("tools", 0, "type", value="x"), 400, "Invalid value: 'x'. Supported values are"),
    ("a tool without a function", drop("tools", 0, "function"), 400, "Missing required parameter: 'tools[0].function'"),
    ("a tool with more", put("tools", 0, "name", value="x"), 400, "Unknown parameter: 'tools[0].name'"),
    ("a function with more", put("tools", 0, "function", "input", value=1), 400, "'tools[0].function.input'"),
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
    ("a message that is none", put("messages", 0, value="hi"), 400, "Invalid type for 'messages[0]'"),
    ("a message without a role", drop("messages", 0, "role"), 400, "Missing required parameter: 'messages[0].role'"),
    (
        "an unknown role",
        put("messages", 0, "role", value="model"),
        400,
        "Invalid value: 'model'. Supported values are: 'system'",
    ),
    ("a message with more", put("messages", 0, "id", value="x"), 400, "Unknown parameter: 'messages[0].id'"),
    ("no content", drop("messages", 0, "content"), 400, "Invalid value for 'content': expected a string, got null"),
    ("content that is a number", put("messages", 0, "content", value=1), 400, "Invalid type for 'messages[0].content'"),
    ("content without parts", put("messages", 0, "content", value=[]), 400, "'messages[0].content': empty array"),
    ("an unknown part", put("messages", 0, "content", value=[{"type": "x"}]), 400, "Invalid value: 'x'. Supported"),
    (
        "a part without its text",
        put("messages", 0, "content", value=[{"type": "text"}]),
        400,
        "Missing required parameter",
    ),
    ("an image without an address", put("messages", 1, "content", value=[{"type": "image_url"}]), 400, "image_url.url"),
    (
        "an image without data",
        put("messages", 1, "content", value=[{"type": "image_url", "image_url": {"url": "data:image/png"}}]),
        400,
        "Expected a valid URL",
    ),
    (
        "an image in a result",
        put("messages", 3, "content", value=[{"type": "image_url", "image_url": {"url": "http://x"}}]),
        400,
        "Invalid value: 'image_url'",
    ),
    ("a reply without anything", chat({"role": "assistant", "content": None}), 400, "expected a string, got null"),
    ("a reply with more", chat({"role": "assistant", "content": "x", "thinking": ""}), 400, "'messages[1].thinking'"),
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
    ("no call id", chat(asks(None)), 400, "Missing required parameter: 'messages[1].tool_calls[0].id'"),
    ("an empty call id", chat(asks(""), told("")), 400, "Duplicate value for 'tool_call_id'"),
    (
        "a long call id",
        chat(asks("a" * 41), told("a" * 41)),
        400,
        "string too long. Expected a string with maximum length 40",
    ),
    ("the same call id twice", chat(asks("a", "a"), told("a"), told("a")), 400, "Duplicate value for 'tool_call_id'"),
    ("a call of another type", put("messages", 2, "tool_calls", 0, "type", value="x"), 400, "Invalid value: 'x'"),
    ("a call of nothing", drop("messages", 2, "tool_calls", 0, "function"), 400, "tool_calls[0].function'"),
    ("a bad call name", chat(asks("a", name="functions.read"), told("a")), 400, "string does not match pattern"),
    ("no call name", chat(asks("a", name=""), told("a")), 400, "tool_calls[0].function.name': string does not match"),
    (
        "arguments as an object",
        chat(asks("a", args={}), told("a")),
        400,
        "Invalid type for 'messages[1].tool_calls[0].function.arg",
    ),
    ("an orphan call at the end", chat(asks("a")), 400, "did not have response messages: a"),
    ("an orphan call of two", chat(asks("a", "b"), told("a")), 400, "did not have response messages: b"),
    (
        "a message before the results",
        chat(asks("a"), {"role": "user", "content": "x"}, told("a")),
        400,
        "did not have response",
    ),
    ("a result without a call", chat(told("a")), 400, "must be a response to a preceeding message with 'tool_calls'"),
    ("a result of another call", chat(asks("a"), told("b")), 400, "'tool_call_id' of 'b' not found"),
    ("two results for one call", chat(asks("a"), told("a"), told("a")), 400, "'tool_call_id' of 'a' not found"),
    ("a result without an id", chat(asks("a"), {"role": "tool", "content": "x"}), 400, "'messages[2].tool_call_id'"),
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
    check("openai_chat", bend, status, needle)


def test_chat_refuses_stream_options_without_a_stream() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            got = await send(llm, good("openai_chat", stream_options={"include_usage": True}))
            assert (got.status, got.json["error"]["param"]) == (400, "stream_options")

    asyncio.run(story())


GOOD_CHAT: dict[str, Bend] = {
    "results in another order": chat(asks("a", "b"), told("b"), told("a")),
    "ids that were used in an earlier turn": chat(asks("a"), told("a"), asks("a"), told("a")),
    "a developer": put("messages", 0, "role", value="developer"),
    "parts": put(
        "messages", 1, "content", value=[TEXT, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    ),
    "an image by its address": put(
        "messages", 1, "content", value=[{"type": "image_url", "image_url": {"url": "http://x"}}]
    ),
    "a tool of the custom type": add("tools", value={"type": "custom", "custom": {"name": "x"}}),
    "no parameters": schema("openai_chat", None),
    "heat without thinking": both(model("gpt-6"), put("temperature", value=1), put("reasoning_effort", value="none")),
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
    takes("openai_chat", GOOD_CHAT[name])


def items(*more: Any) -> Bend:
    return put("input", value=[{"role": "user", "content": "hi"}, *more])


def fc(call_id: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}", **more}


def out(call_id: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "x", **more}


def sealed(text: str = "") -> str:
    from retinue.testing.fake_wire import seal

    return seal(text)


def thought(**more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed(), **more}


REPLY = {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
RESPONSES: list[Case] = [
    *openai("openai_responses", "tools[0]"),
    ("an unknown field", put("max_tokens", value=100), 400, "Unknown parameter: 'max_tokens'"),
    ("too little to say", put("max_output_tokens", value=15), 400, "Expected a value >= 16, but got 15"),
    ("a limit as a text", put("max_output_tokens", value="99"), 400, "Invalid type for 'max_output_tokens'"),
    ("a response that is not stored", put("previous_response_id", value="resp_1"), 400, "'resp_1' not found"),
    ("instructions that are none", put("instructions", value=[1]), 400, "Invalid type for 'instructions'"),
    ("a tool with more", put("tools", 0, "function", value={}), 400, "Unknown parameter: 'tools[0].function'"),
    ("no input", drop("input"), 400, "Missing required parameter: 'input'"),
    ("input that is a number", put("input", value=1), 400, "Invalid type for 'input'"),
    ("no item", put("input", value=[]), 400, "Invalid 'input': empty array"),
    ("an item that is none", put("input", 0, value="hi"), 400, "Invalid type for 'input[0]'"),
    ("an item without a type", put("input", 0, value={}), 400, "Missing required parameter: 'input[0].type'"),
    ("an unknown item", put("input", 0, value={"type": "x"}), 400, "Invalid value: 'x'. Supported values are"),
    ("an item with more", put("input", 0, "name", value="x"), 400, "Unknown parameter: 'input[0].name'"),
    ("a message without a role", put("input", 0, value={"type": "message", "content": "x"}), 400, "'input[0].role'"),
    ("an unknown role", put("input", 0, "role", value="tool"), 400, "Invalid value: 'tool'. Supported values are"),
    ("no content", drop("input", 0, "content"), 400, "Missing required parameter: 'input[0].content'"),
    ("content that is a number", put("input", 0, "content", value=1), 400, "Invalid type for 'input[0].content'"),
    (
        "what the model says, said by the user",
        put("input", 0, "content", value=REPLY["content"]),
        400,
        "'output_text'. Supp",
    ),
    (
        "what the user says, said by the model",
        items({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}),
        400,
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'",
    ),
    ("a part without its text", put("input", 0, "content", value=[{"type": "input_text"}]), 400, "content[0].text"),
    ("an image without an address", put("input", 0, "content", value=[{"type": "input_image"}]), 400, "image_url"),
    ("an id of another kind", items(fc("a", id="call_1"), out("a")), 400, "Expected an ID that begins with 'fc'"),
    (
        "the same item twice",
        items(fc("a", id="fc_1"), fc("b", id="fc_1"), out("a"), out("b")),
        400,
        "Duplicate item found with id fc_1",
    ),
    ("no call id", items(fc(None)), 400, "Missing required parameter: 'input[1].call_id'"),
    ("an empty call id", items(fc(""), out("")), 400, "Duplicate 'call_id'"),
    ("a long call id", items(fc("a" * 65)), 400, "maximum length 64"),
    ("the same call id again", items(fc("a"), out("a"), fc("a"), out("a")), 400, "Duplicate 'call_id': a"),
    ("a bad call name", items(fc("a", name="a.b"), out("a")), 400, "Invalid 'input[1].name': string does not match"),
    ("no call name", items(fc("a", name=""), out("a")), 400, "Invalid 'input[1].name': string does not match"),
    ("arguments as an object", items(fc("a", arguments={}), out("a")), 400, "Invalid type for 'input[1].arguments'"),
    ("an orphan call", items(fc("a"), fc("b"), out("a")), 400, "No tool output found for function call b."),
    ("a result without a call", items(out("a")), 400, "No tool call found for function call output with call_id a."),
    ("a result before its call", items(out("a"), fc("a")), 400, "No tool call found for function call output"),
    ("two results for one call", items(fc("a"), out("a"), out("a")), 400, "Duplicate function call output"),
    ("a result without an id", items(fc("a"), out(None)), 400, "Missing required parameter: 'input[2].call_id'"),
    (
        "a result without an output",
        items(fc("a"), out("a", output=None)),
        400,
        "Missing required parameter: 'input[2].output'",
    ),
    ("a result with more", items(fc("a"), out("a", is_error=True)), 400, "Unknown parameter: 'input[2].is_error'"),
    ("a thought without an id", items({"type": "reasoning", "summary": []}), 400, "'input[1].id'"),
    ("a thought without a summary", items({"type": "reasoning", "id": "rs_1"}), 400, "'input[1].summary'"),
    ("a thought that was not stored", items(thought(encrypted_content=None), REPLY), 404, "Items are not persisted"),
    ("a thought of another", items(thought(encrypted_content="gAAAA"), REPLY), 400, "could not be verified"),
    ("a thought and nothing behind it", items(thought()), 400, "without its required following item"),
    (
        "a thought before the user",
        items(thought(), {"role": "user", "content": "x"}),
        400,
        "without its required following",
    ),
    ("two thoughts", items(thought(), thought(id="rs_2"), REPLY), 400, "without its required following item"),
]


@refused("openai_responses", RESPONSES)
def test_responses_refuses(bend: Bend, status: int, needle: str) -> None:
    check("openai_responses", bend, status, needle)


GOOD_RESPONSES: dict[str, Bend] = {
    "a text as input": put("input", value="hi"),
    "no tool in the list": put("tools", value=[]),
    "tools of the server": add("tools", value={"type": "web_search"}),
    "something between a call and its result": items(fc("a"), {"role": "user", "content": "x"}, out("a")),
    "a thought and its reply": items(thought(), REPLY, {"role": "user", "content": "x"}),
    "a thought and its call": items(thought(), fc("a"), out("a")),
    "an image": put("input", 0, "content", value=[{"type": "input_image", "image_url": "data:image/png;base64,AA"}]),
    "a developer": items({"role": "developer", "content": "x"}, {"role": "system", "content": "y"}),
    "a refusal": items({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}),
}


@pytest.mark.parametrize("name", GOOD_RESPONSES)
def test_responses_takes(name: str) -> None:
    takes("openai_responses", GOOD_RESPONSES[name])


def contents(*more: Any) -> Bend:
    return put("contents", value=[{"role": "user", "parts": [{"text": "hi"}]}, *more])


def ask(*names: str, **more: Any) -> dict[str, Any]:
    return {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}, **more}} for name in names]}


def tell(*names: str, **more: Any) -> dict[str, Any]:
    parts = [{"functionResponse": {"name": name, "response": {"output": "x"}, **more}} for name in names]
    return {"role": "user", "parts": parts}


def declared(**more: Any) -> Bend:
    return lambda post: post.body["tools"][0]["functionDeclarations"][0].update(more)


def parameters(value: Any) -> Bend:
    return declared(parameters=value)


UNEVEN = "Please ensure that the number of function response parts is equal"
AFTER_CALL = "Please ensure that function response turn comes immediately after a function call turn."
AFTER_USER = "Please ensure that function call turn comes immediately after a user turn"
USER = {"role": "user", "parts": [{"text": "x"}]}
GEMINI: list[Case] = [
    ("no key", header("x-goog-api-key", None), 403, "Method doesn't allow unregistered callers"),
    ("not JSON by its header", header("content-type", "text/plain"), 400, "Invalid JSON payload received"),
    ("an unknown field", put("messages", value=[]), 400, 'Unknown name "messages": Cannot find field.'),
    (
        "an unknown setting",
        put("generationConfig", value={"max_tokens": 1}),
        400,
        "\"maxTokens\" at 'generation_config'",
    ),
    ("settings that are none", put("generationConfig", value=[1]), 400, "Invalid value at 'generation_config'"),
    ("a limit of 0", put("generationConfig", value={"maxOutputTokens": 0}), 400, "max_output_tokens: must be positive"),
    ("a limit as a text", put("generation_config", value={"max_output_tokens": "9"}), 400, "must be positive"),
    ("no contents", drop("contents"), 400, "contents is not specified"),
    ("no content", put("contents", value=[]), 400, "contents is not specified"),
    ("contents that are no list", put("contents", value={"a": 1}), 400, "Invalid value at 'contents'"),
    ("a content that is none", put("contents", 0, value="hi"), 400, "Invalid value at 'contents[0]'"),
    ("a content with more", put("contents", 0, "content", value=1), 400, "Unknown name \"content\" at 'contents[0]'"),
    ("an unknown role", put("contents", 0, "role", value="assistant"), 400, "Please use a valid role: user, model."),
    ("no parts", put("contents", 0, "parts", value=[]), 400, "contents.parts must not be empty"),
    (
        "parts that are no list",
        put("contents", 0, "parts", value={"text": "x"}),
        400,
        "Invalid value at 'contents[0].parts'",
    ),
    ("a part that is none", put("contents", 0, "parts", value=["x"]), 400, "Invalid value at 'contents[0].parts[0]'"),
    (
        "a part with more",
        put("contents", 0, "parts", value=[{"text": "x", "type": "text"}]),
        400,
        'Unknown name "type"',
    ),
    ("a part of nothing", put("contents", 0, "parts", value=[{}]), 400, "must have one initialized field"),
    ("a part of two things", put("contents", 0, "parts", value=[{"text": "x", "inlineData": {}}]), 400, "already set"),
    (
        "a text that is none",
        put("contents", 0, "parts", value=[{"text": 1}]),
        400,
        "Invalid value at 'contents[0].parts[0]'",
    ),
    ("an empty text", put("contents", 0, "parts", value=[{"text": ""}]), 400, "it must have a text parameter"),
    ("data that is none", put("contents", 0, "parts", value=[{"inlineData": "x"}]), 400, "parts[0].inline_data'"),
    (
        "a signature that is none",
        contents({"role": "model", "parts": [{"text": "x", "thoughtSignature": "%"}]}, USER),
        400,
        "TYPE_BYTES",
    ),
    ("instructions that are none", put("systemInstruction", value="x"), 400, "Invalid value at 'system_instruction'"),
    ("instructions with more", put("systemInstruction", value={"text": "x"}), 400, "at 'system_instruction'"),
    ("a call that is none", contents({"role": "model", "parts": [{"functionCall": "x"}]}), 400, "function_call'"),
    (
        "a call with more",
        contents(ask("read", arguments="{}"), tell("read")),
        400,
        'Unknown name "arguments" at \'contents[1]',
    ),
    ("no call name", contents(ask(""), tell("")), 400, "function_call.name: [REQUIRED_FIELD_MISSING]"),
    ("arguments as a text", contents(ask("read", args="x")), 400, "function_call.args'"),
    (
        "the same call id twice",
        contents(ask("read", "read", id="a"), tell("read", "read", id="a")),
        400,
        "Duplicate function call id",
    ),
    ("an orphan call at the end", contents(ask("read")), 400, UNEVEN),
    ("an orphan call of two", contents(ask("a", "b"), tell("a")), 400, UNEVEN),
    ("a message before the results", contents(ask("a"), USER, tell("a")), 400, UNEVEN),
    (
        "a reply before the results",
        contents(ask("a"), {"role": "model", "parts": [{"text": "x"}]}, tell("a")),
        400,
        UNEVEN,
    ),
    ("results in two messages", contents(ask("a", "b"), tell("a"), tell("b")), 400, UNEVEN),
    ("a result of another call", contents(ask("a"), tell("b")), 400, UNEVEN),
    ("a result with another id", contents(ask("a", id="1"), tell("a", id="2")), 400, UNEVEN),
    ("a result without a call", contents(tell("a")), 400, AFTER_CALL),
    ("two results for one call", contents(ask("a"), tell("a", "a")), 400, UNEVEN),
    ("a result of the model", contents({"role": "model", "parts": tell("a")["parts"]}), 400, AFTER_CALL),
    ("a call of the user", contents({"role": "user", "parts": ask("a")["parts"]}), 400, AFTER_USER),
    ("a call first", put("contents", value=[ask("a"), tell("a")]), 400, AFTER_USER),
    (
        "a call after a reply",
        contents({"role": "model", "parts": [{"text": "x"}]}, ask("a"), tell("a")),
        400,
        AFTER_USER,
    ),
    ("a reply at the end", contents({"role": "model", "parts": [{"text": "x"}]}), 400, "end with a user role"),
    ("a result that is none", contents(ask("a"), {"parts": [{"functionResponse": "x"}]}), 400, "function_response'"),
    ("a result with more", contents(ask("a"), tell("a", output="x")), 400, 'Unknown name "output"'),
    ("a result without a name", contents(ask("a"), tell("")), 400, "function_response.name: Name cannot be empty"),
    ("a result as a text", contents(ask("a"), tell("a", response="x")), 400, "google.protobuf.Struct"),
    ("calls without signatures", model("gemini-3-pro"), 400, "Function call is missing a thought_signature"),
    ("tools that are no list", put("tools", value={"a": 1}), 400, "Invalid value at 'tools'"),
    ("a tool that is none", put("tools", 0, value="x"), 400, "Invalid value at 'tools[0]'"),
    ("a tool with more", put("tools", 0, "functions", value=[]), 400, "Unknown name \"functions\" at 'tools[0]'"),
    ("functions that are no list", put("tools", 0, "functionDeclarations", value={}), 400, "function_declarations'"),
    ("a function that is none", put("tools", 0, "functionDeclarations", value=["x"]), 400, "function_declarations[0]'"),
    (
        "a function with more",
        declared(strict=True),
        400,
        "Unknown name \"strict\" at 'tools[0].function_declarations[0]'",
    ),
    ("a bad tool name", declared(name="1a"), 400, "Invalid function name. Must start with a letter or an underscore"),
    ("a long tool name", declared(name="a" * 65), 400, "Invalid function name"),
    ("a tool without a name", declared(name=None), 400, "Invalid function name"),
    (
        "two tools of one name",
        add("tools", value=tools("gemini")[0]),
        400,
        "Duplicate function declaration found: read",
    ),
    ("two schemas for one tool", declared(parametersJsonSchema=SCHEMA), 400, "are mutually exclusive"),
    ("a schema that is none", parameters([1]), 400, "function_declarations[0].parameters'"),
    ("a schema of a text", parameters({"type": "STRING"}), 400, "parameters schema should be of type OBJECT"),
    ("a schema without a type", parameters({"properties": {}}), 400, "parameters schema should be of type OBJECT"),
    ("a word of JSON schema", parameters({"type": "object", "$schema": "x"}), 400, 'Unknown name "$schema" at'),
    ("a closed schema", parameters({"type": "object", "additionalProperties": False}), 400, '"additionalProperties"'),
    ("two types", parameters({"type": ["object", "null"]}), 400, "Proto field is not repeating, cannot start list"),
    ("an unknown type", parameters({"type": "text"}), 400, "v1beta.Type"),
    ("properties that are none", parameters({"type": "object", "properties": []}), 400, "parameters.properties'"),
    (
        "a required one that there is not",
        parameters({"type": "object", "required": ["x"]}),
        400,
        "property is not defined: x",
    ),
    (
        "an array of what",
        parameters({"type": "object", "properties": {"x": {"type": "array"}}}),
        400,
        "items: missing field",
    ),
    (
        "a bad schema inside",
        parameters({"type": "object", "properties": {"x": {"type": "array", "items": {"const": 1}}}}),
        400,
        "Unknown name \"const\" at 'tools[0].function_declarations[0].parameters.properties[0].value.items'",
    ),
    (
        "a bad choice inside",
        parameters({"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}, {"oneOf": []}]}}}),
        400,
        "properties[0].value.any_of[1]'",
    ),
    (
        "a JSON schema that is none",
        lambda post: post.body.update(
            tools=[{"functionDeclarations": [{"name": "a", "parametersJsonSchema": {"type": "string"}}]}]
        ),
        400,
        "parameters_json_schema: schema must be an object schema",
    ),
]


@refused("gemini", GEMINI)
def test_gemini_refuses(bend: Bend, status: int, needle: str) -> None:
    check("gemini", bend, status, needle)


def signed(value: str) -> Bend:
    def bend(post: Post) -> None:
        post.model = "gemini-3-pro"
        for content in post.body["contents"]:
            if content["role"] == "model":
                content["parts"][0]["thoughtSignature"] = value

    return bend


GOOD_GEMINI: dict[str, Bend] = {
    "a key in the address": both(
        header("x-goog-api-key", None), lambda post: setattr(post, "path", f"{post.target()}?key=k")
    ),
    "a bearer": both(header("x-goog-api-key", None), header("authorization", "Bearer k")),
    "snake case": lambda post: post.body.update(
        system_instruction={"parts": [{"text": "x"}]}, tools=[{"function_declarations": [{"name": "a.b:c-d"}]}]
    ),
    "results in another order": contents(ask("a", "b"), tell("b", "a")),
    "an error as a result": contents(ask("a"), tell("a", response={"error": "x"})),
    "ids": contents(ask("a", id="1"), tell("a", id="1")),
    "no role": drop("contents", 0, "role"),
    "a picture": put("contents", 0, "parts", value=[{"inlineData": {"mimeType": "image/png", "data": "AA"}}]),
    "a JSON schema": lambda post: post.body.update(
        tools=[
            {"functionDeclarations": [{"name": "a", "parametersJsonSchema": {**SCHEMA, "additionalProperties": False}}]}
        ]
    ),
    "signatures": signed(sealed("read")),
    "calls of another model": signed("skip_thought_signature_validator"),
    "unsigned calls of an earlier turn": both(
        model("gemini-3-pro"), contents(ask("a"), tell("a"), {"role": "model", "parts": [{"text": "x"}]}, USER)
    ),
    "a thought": contents({"role": "model", "parts": [{"text": "x", "thought": True}, {"text": "y"}]}, USER),
}


@pytest.mark.parametrize("name", GOOD_GEMINI)
def test_gemini_takes(name: str) -> None:
    takes("gemini", GOOD_GEMINI[name])


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'"x"', b'{"model": "\xff"}', b'{"a": "\\ud800"}', b"{}{}"])
def test_a_body_that_is_no_object_is_refused(dialect: str, data: bytes) -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            got = await send(llm, good(dialect), data=data)
            assert got.status == 400
            assert "JSON" in message_of(dialect, got)
            assert len(llm.violations) == 1

    asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_paths_methods_and_sizes_are_refused_in_the_shape_of_the_provider(dialect: str) -> None:
    async def story() -> None:
        async with FakeLLM(settings=Settings(max_body=1000)) as llm:
            post = good(dialect)
            path = post.target()
            post.path = path.replace("generateContent", "nothing") if dialect == "gemini" else f"{path}/nothing"
            got = await send(llm, post)
            assert got.status == 404
            assert "Not found" in message_of(dialect, got)
            got = await raw(llm, f"GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n".encode())
            assert got.status == 405
            message_of(dialect, got)
            got = await send(llm, good(dialect, text="x" * 2000))
            assert got.status == 413
            message_of(dialect, got)
            assert [v.status for v in llm.violations] == [404, 405, 413]

    asyncio.run(story())


@pytest.mark.parametrize(
    "schema",
    [
        "x",
        {"type": "text"},
        {"type": ["string", 1]},
        {"required": [1]},
        {"required": ["a", "a"]},
        {"enum": []},
        {"enum": "x"},
        {"minimum": "1"},
        {"maxLength": -1},
        {"properties": []},
        {"properties": {"x": 1}},
        {"$defs": {"x": {"type": "y"}}},
        {"items": [{}]},
        {"not": {"type": "y"}},
        {"anyOf": []},
        {"allOf": [{"type": "y"}]},
    ],
)
def test_what_is_no_json_schema_is_found(schema: Any) -> None:
    from retinue.testing.fake_strict import bad_schema

    assert bad_schema({"type": "object", "properties": {"deep": schema}})
    assert bad_schema({"type": "object", "properties": {"deep": True}}) is None


def test_anthropic_thinks_when_it_is_asked_to_and_wants_its_thoughts_back() -> None:
    async def story() -> None:
        from retinue.testing import call

        options = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
        async with FakeLLM([call("read", path="a"), "done"]) as llm:
            post = good("anthropic", **options)
            said = (await send(llm, post)).json["content"]
            assert [block["type"] for block in said] == ["thinking", "tool_use"]
            answer = {"type": "tool_result", "tool_use_id": said[1]["id"], "content": "x"}
            post.body["messages"] += [{"role": "assistant", "content": said}, {"role": "user", "content": [answer]}]
            assert (await send(llm, post)).status == 200
            for broken in (said[1:], [{**said[0], "thinking": "else"}, said[1]]):
                post.body["messages"][1]["content"] = broken
                assert (await send(llm, post)).status == 400

    asyncio.run(story())


def test_responses_seal_their_reasoning_and_gemini_signs_its_calls() -> None:
    async def story() -> None:
        from retinue.testing import call

        async with FakeLLM([call("read", path="a"), "done"]) as llm:
            post = good("openai_responses", include=["reasoning.encrypted_content"])
            output = (await send(llm, post)).json["output"]
            assert [item["type"] for item in output] == ["reasoning", "function_call"]
            post.body["input"] += [*output, out(output[1]["call_id"])]
            assert (await send(llm, post)).status == 200
            twin = good("gemini", model="gemini-3-pro")
            content = (await send(llm, twin)).json["candidates"][0]["content"]
            given = content["parts"][0]["functionCall"]
            told = {"functionResponse": {"name": "read", "id": given["id"], "response": {"output": "x"}}}
            twin.body["contents"] += [content, {"role": "user", "parts": [told]}]
            assert (await send(llm, twin)).status == 200
            del content["parts"][0]["thoughtSignature"]
            assert (await send(llm, twin)).status == 400

    asyncio.run(story())


def test_no_value_of_any_type_anywhere_makes_the_server_fail() -> None:
    """Each place of a good body is replaced by values of every type: a refusal or an answer, never silence."""
    values: list[Any] = [None, True, 0, -1, 1.5, "", "x", [], [0], {}, {"x": 0}]

    def places(value: Any) -> list[tuple[Any, Any]]:
        steps = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
        found = [(value, step) for step in steps]
        for step in steps:
            found += places(value[step])
        return found

    async def story() -> None:
        async with FakeLLM() as llm:
            from tests.testing.fake_llm_support import connect, wire

            for dialect in ALL:
                reader, writer = await connect(llm)
                post = good(dialect, turns=1)
                for holder, step in places(post.body):
                    kept = holder[step]
                    for value in values:
                        holder[step] = value
                        writer.write(wire(post))
                        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
                        length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                        body = await reader.readexactly(int(length)) if length else await reader.readuntil(b"0\r\n\r\n")
                        assert head.split(b" ")[1] in (b"200", b"400"), (dialect, step, value)
                        assert length == b"" or json.loads(body)
                    holder[step] = kept
                writer.close()

    asyncio.run(story())
