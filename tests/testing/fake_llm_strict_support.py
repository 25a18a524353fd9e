"""Good requests of each dialect, ways to bend them, and what the fake provider makes of the
result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.testing.fake_llm_support import SCHEMA, Got, Post, good, send, tools

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


def message_of(dialect: str, reply: Got) -> str:
    """The message, out of exactly the provider's shape."""
    json = reply.json
    if dialect == "anthropic":
        assert set(json) == {"type", "error", "request_id"}
        assert json["type"] == "error"
        assert {"type", "message"} <= set(json["error"])
        assert reply.headers["request-id"] == json["request_id"]
    elif dialect == "gemini":
        assert set(json) == {"error"}
        assert {"code", "message", "status"} <= set(json["error"])
        assert json["error"]["code"] == reply.status
        assert json["error"]["status"] in (
            "INVALID_ARGUMENT",
            "PERMISSION_DENIED",
            "NOT_FOUND",
            "UNIMPLEMENTED",
        )
    else:
        assert set(json) == {"error"}
        assert set(json["error"]) == {"message", "type", "param", "code"}
        assert json["error"]["type"] == "invalid_request_error"
    return str(json["error"]["message"])


def refused(
    dialect: str, cases: list[Case]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    ids = [name for name, _, _, _ in cases]
    assert len(set(ids)) == len(ids)
    return pytest.mark.parametrize(
        ("bend", "status", "needle"), [case[1:] for case in cases], ids=ids
    )


def answers(dialect: str, bend: Bend) -> list[tuple[int, str]]:
    """The status and the message that a bent request gets, alone and as a stream; both are
    remembered as they are."""

    async def story() -> list[tuple[int, str]]:
        async with FakeLLM() as llm:
            out = []
            for stream in (False, True):
                post = good(dialect, turns=2, stream=stream)
                bend(post)
                reply = await send(llm, post)
                assert reply.status != 200, reply.body
                out.append((reply.status, message_of(dialect, reply)))
            rows = [(v.n, v.dialect, v.status, v.message) for v in llm.violations]
            assert rows == [(n, dialect, *text) for n, text in enumerate(out, 1)]
            assert llm.requests == []
            return out

    return asyncio.run(story())


def trouble(dialect: str, bend: Bend) -> list[Any]:
    """Whatever is found wrong with a request that is bent and still good."""

    async def story() -> list[Any]:
        async with FakeLLM() as llm:
            post = good(dialect, turns=2)
            bend(post)
            reply = await send(llm, post)
            return [*llm.violations, *([] if reply.status == 200 else [reply])]

    return asyncio.run(story())


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
    loose = {
        "type": "object",
        "properties": {"x": {"type": "string"}},
        "additionalProperties": False,
    }
    bad = "Invalid schema for function 'read': "
    return [
        ("no key", header("authorization", None), 401, "You didn't provide an API key"),
        (
            "a key that is no bearer",
            header("authorization", "Basic x"),
            401,
            "You didn't provide an API key",
        ),
        (
            "not JSON by its header",
            header("content-type", "text/plain"),
            400,
            "could not parse the JSON body",
        ),
        ("no model", put("model", value=""), 400, "you must provide a model parameter"),
        (
            "stream as a text",
            put("stream", value="yes"),
            400,
            "Invalid type for 'stream': expected a boolean",
        ),
        ("too hot", put("temperature", value=2.5), 400, "Invalid 'temperature'"),
        (
            "heat while thinking",
            both(model("gpt-6.1"), put("temperature", value=1)),
            400,
            "'temperature' is not supported",
        ),
        (
            "top_p while thinking",
            both(model("o3"), put("top_p", value=1)),
            400,
            "'top_p' is not supported",
        ),
        ("tools that are no list", put("tools", value={"a": 1}), 400, "Invalid type for 'tools'"),
        ("a tool that is none", put("tools", 0, value="read"), 400, "Invalid type for 'tools[0]'"),
        (
            "a tool without a type",
            drop("tools", 0, "type"),
            400,
            "Missing required parameter: 'tools[0].type'",
        ),
        ("too many tools", put("tools", value=tools(dialect) * 129), 400, "array too long"),
        (
            "a bad tool name",
            named(dialect, "a.b"),
            400,
            f"Invalid '{at}.name': string does not match pattern",
        ),
        (
            "a long tool name",
            named(dialect, "a" * 65),
            400,
            f"Invalid '{at}.name': string too long",
        ),
        ("a tool name that is none", named(dialect, 7), 400, f"Invalid type for '{at}.name'"),
        (
            "a tool without a name",
            named(dialect, None),
            400,
            f"Missing required parameter: '{at}.name'",
        ),
        ("a schema that is none", schema(dialect, [1]), 400, f"{bad}[1] is not of type"),
        (
            "a schema of a text",
            schema(dialect, {"type": "string"}),
            400,
            f"{bad}schema must be a JSON Schema of 'type",
        ),
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


def out(call_id: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "x", **more}


def sealed(text: str = "") -> str:
    from retinue.testing.fake_llm.dialect import seal

    return seal(text)
