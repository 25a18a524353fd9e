"""What the fake provider says: scripts, marks, usage, and its prompt cache."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from retinue.core.messages import AssistantMessage, ModelReply, ToolMessage, UserMessage
from retinue.core.values import Usage
from retinue.errors import ConfigError, ModelRejected, ModelUnavailable
from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import FakeLLM, FakeSettings, ParsedRequest
from tests.testing.fake_llm_support import (
    ALL,
    KEY,
    SCHEMA,
    Post,
    calls_of,
    good,
    send,
    text_of,
)

BOTH = [False, True]


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_a_list_says_one_line_a_turn_and_its_last_line_for_ever(dialect: str, stream: bool) -> None:
    async def story() -> None:
        async with FakeLLM(
            ["first", [call("read", path="a"), call("read", path="é")], "last"]
        ) as llm:
            replies = [await send(llm, good(dialect, stream=stream, turns=n)) for n in range(5)]
            assert [text_of(dialect, reply, stream) for reply in replies] == [
                "first",
                "",
                "last",
                "last",
                "last",
            ]
            calls = calls_of(dialect, replies[1], stream)
            assert [(name, json.loads(args)["path"]) for name, args in calls] == [
                ("read", "a"),
                ("read", "é"),
            ]
            assert llm.violations == []

    asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_a_function_is_asked_with_the_conversation_in_our_own_values(dialect: str) -> None:
    requests: list[ParsedRequest] = []

    def script(one: ParsedRequest) -> str:
        requests.append(one)
        return "yes"

    system = {
        "anthropic": {"system": [{"type": "text", "text": "Be good."}]},
        "openai_chat": {},
        "openai_responses": {"instructions": "Be good."},
        "gemini": {"systemInstruction": {"parts": [{"text": "Be good."}]}},
    }[dialect]

    async def story() -> None:
        async with FakeLLM(script) as llm:
            await send(llm, good(dialect, turns=1, **system))
            assert llm.requests == requests

    asyncio.run(story())
    (one,) = requests
    assert (one.dialect, one.model, one.system, one.stream, one.turn, one.n) == (
        dialect,
        "m",
        "Be good.",
        False,
        1,
        1,
    )
    user, reply, *results = one.messages
    first, second = results
    assert user == UserMessage(text="hi")
    assert isinstance(reply, AssistantMessage)
    assert [(c.name, json.loads(c.arguments_json)) for c in reply.calls] == [
        ("read", {"path": "0"}),
        ("read", {"path": "1"}),
    ]
    assert [r.call_id for r in (first, second) if isinstance(r, ToolMessage)] == [
        c.id for c in reply.calls
    ]
    assert [(r.text, r.name) for r in (first, second) if isinstance(r, ToolMessage)] == [
        ("result 0", "read"),
        ("result 1", "read"),
    ]
    (tool,) = one.tools
    assert (tool.name, tool.parameters) == ("read", SCHEMA)


@pytest.mark.parametrize("dialect", ALL)
def test_headers_are_kept_without_keys_and_the_body_as_it_came(dialect: str) -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            post = good(dialect)
            post.headers["x-trace"] = "17"
            if dialect == "gemini":
                post.path = post.target() + f"?key={KEY}"
            await send(llm, post)
            assert llm.requests[0].headers["x-trace"] == "17"
            assert KEY not in str(llm.requests[0])
            assert llm.requests[0].body == json.loads(post.data())

    asyncio.run(story())


@pytest.mark.parametrize(
    ("line", "text", "calls"),
    [
        ("a text", "a text", []),
        (call("read", path="a"), "", [{"path": "a"}]),
        ((call("read", path="a"), call("read", path="b")), "", [{"path": "a"}, {"path": "b"}]),
        (AssistantMessage(text="F1", calls=(call("read", path="a"),)), "F1", [{"path": "a"}]),
        (ModelReply(message=AssistantMessage(text="whole")), "whole", []),
    ],
)
def test_a_line_may_be_anything_that_a_scripted_model_says(
    line: Any, text: str, calls: list[Any]
) -> None:
    async def later(request: ParsedRequest) -> Any:
        await asyncio.sleep(0)
        return line

    async def story() -> None:
        for script in ([line], lambda request: line, later):
            async with FakeLLM(script) as llm:
                for dialect in ALL:
                    reply = await send(llm, good(dialect))
                    assert text_of(dialect, reply, False) == text
                    assert [
                        json.loads(args) for _, args in calls_of(dialect, reply, False)
                    ] == calls

    asyncio.run(story())


def test_a_reply_may_bring_its_own_usage_stop_and_model() -> None:
    reply = ModelReply(
        message=AssistantMessage(text="cut"),
        usage=Usage(input=100, output=7),
        stop="length",
        model="real-1",
    )

    async def story() -> None:
        async with FakeLLM([reply]) as llm:
            text = (await send(llm, good("anthropic"))).json
            assert (text["stop_reason"], text["model"]) == ("max_tokens", "real-1")
            assert (text["usage"]["input_tokens"], text["usage"]["output_tokens"]) == (100, 7)
            refused = ModelReply(message=AssistantMessage(text="No."), stop="refusal")
        async with FakeLLM([refused]) as llm:
            assert (await send(llm, good("openai_chat"))).json["choices"][0]["message"][
                "refusal"
            ] == "No."

    asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_an_exception_in_a_script_is_told_as_the_provider_would(dialect: str) -> None:
    async def story() -> None:
        async with FakeLLM([ModelUnavailable("later", retry_after=2)]) as llm:
            reply = await send(llm, good(dialect))
            assert (reply.status, reply.headers["retry-after"]) == (
                529 if dialect == "anthropic" else 503,
                "2",
            )
            assert b"later" in reply.body
        async with FakeLLM([ModelRejected("never")]) as llm:
            reply = await send(llm, good(dialect))
            assert reply.status == 400
            assert b"never" in reply.body

    asyncio.run(story())


def test_a_script_that_fails_shows_in_the_violations() -> None:
    def script(request: ParsedRequest, n: int = 0) -> str:
        raise KeyError("oops")

    async def later(request: ParsedRequest) -> str:
        await asyncio.sleep(0)
        raise KeyError("oops")

    async def wrong_fault(request: ParsedRequest) -> str:
        return "F2c"

    async def story() -> None:
        for one in (script, later):
            async with FakeLLM(one) as llm:
                reply = await send(llm, good("anthropic"))
                assert reply.status == 400, "nobody tries that again"
                assert "oops" in llm.violations[0].message
                with pytest.raises(KeyError, match="oops"):
                    llm.check()
        async with FakeLLM(faults=script) as llm:
            text = (await send(llm, good("gemini"))).json
            assert text["error"]["status"] == "INVALID_ARGUMENT"
            assert len(llm.violations) == 1
        async with FakeLLM(wrong_fault) as llm:
            assert (await send(llm, good("gemini"))).status == 400
            assert "Unknown fault F2c for gemini" in llm.violations[0].message

    asyncio.run(story())


def test_a_script_has_a_line() -> None:
    with pytest.raises(ConfigError):
        FakeLLM([])
    with pytest.raises(ConfigError):
        FakeLLM("text")


def test_a_mistake_in_a_script_is_shown_before_anybody_asks() -> None:
    with pytest.raises(ConfigError, match=r"Line 2 of the script: A line is a text.*not 42\."):
        FakeLLM(["fine", 42])
    with pytest.raises(ConfigError, match=r"Unknown fault 'F1x'\. Did you mean 'F1"):
        FakeLLM(faults=[None, "F1x"])
    llm = FakeLLM(["fine"])
    with pytest.raises(ConfigError, match="Line 1 of the script"):
        llm.script = [{"text": "a dict"}]
    llm.check()


def test_what_a_function_says_wrongly_is_named() -> None:
    async def later(request: ParsedRequest) -> object:
        return ["not a call"]

    async def story() -> None:
        for script in (lambda request: 42, later):
            async with FakeLLM(script) as llm:
                assert (await send(llm, good("openai_chat"))).status == 400
                assert "TypeError: A line is a text" in llm.violations[0].message

    asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_a_reply_is_no_longer_than_was_asked_for(dialect: str) -> None:
    fields = {"anthropic": "max_tokens", "openai_chat": "max_tokens"}

    def short(post: Any) -> Any:
        if dialect == "gemini":
            post.body["generationConfig"] = {"maxOutputTokens": 20}
        else:
            post.body[fields.get(dialect, "max_output_tokens")] = 20
        return post

    async def story() -> None:
        lines = ["y" * 400, AssistantMessage(text="y" * 75, calls=(call("read", path="a"),))]
        for line, length in zip(lines, (80, 75), strict=True):
            async with FakeLLM([line]) as llm:
                reply = await send(llm, short(good(dialect)))
                assert text_of(dialect, reply, False) == "y" * length
                assert calls_of(dialect, reply, False) == []
                reasons = {"anthropic": "max_tokens", "openai_chat": "length"}
                target = {**reasons, "gemini": "MAX_TOKENS"}.get(dialect, "max_output_tokens")
                assert target in reply.body.decode()

    asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_what_is_said_depends_on_the_conversation_alone(dialect: str) -> None:
    async def story() -> list[list[tuple[str, str]]]:
        texts = []
        for _ in range(2):
            async with FakeLLM([call("read", path="a")]) as llm:
                await send(llm, good(dialect, text="something else"))
                reply = await send(llm, good(dialect, turns=1))
                texts.append(calls_of(dialect, reply, False))
                ids = {
                    "anthropic": ["content", 0, "id"],
                    "openai_responses": ["output", 0, "call_id"],
                }.get(dialect)
                if ids:
                    value = reply.json
                    for step in ids:
                        value = value[step]
                    texts.append([("id", value)])
        return texts

    text = asyncio.run(story())
    assert text[: len(text) // 2] == text[len(text) // 2 :]


@pytest.mark.parametrize("dialect", ALL)
def test_a_mark_in_a_text_calls_a_tool_and_then_answers(dialect: str) -> None:
    async def story() -> None:
        async with FakeLLM(["not asked"]) as llm:
            replies = [
                await send(llm, good(dialect, text="Do @@turns=3,tool=read@@ please", turns=n))
                for n in range(4)
            ]
            calls = [calls_of(dialect, reply, False) for reply in replies]
            assert [len(result) for result in calls] == [1, 1, 0, 0]
            assert [json.loads(result[0][1]) for result in calls[:2]] == [
                {"path": "1"},
                {"path": "2"},
            ]
            assert text_of(dialect, replies[2], False) == "Done after 3 turns."
            assert llm.violations == []

    asyncio.run(story())


def test_a_mark_says_how_many_calls_and_with_what_and_the_last_mark_counts() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            text = (
                '@@turns=9,tool=read@@ @@turns=2,tool=read,calls=3,args={"path":"\\u0040\\u0040"}@@'
            )
            reply = await send(llm, good("openai_chat", text="@@turns=1@@"))
            assert text_of("openai_chat", reply, False) == "Done after 1 turns."
            reply = await send(llm, good("openai_chat", text=text.partition(" ")[2]))
            assert [json.loads(args) for _, args in calls_of("openai_chat", reply, False)] == [
                {"path": "@@"}
            ] * 3
            reply = await send(llm, good("openai_chat", text="@@turns=2@@"))
            assert len(calls_of("openai_chat", reply, False)) == 1
            reply = await send(llm, good("openai_chat", text="@@turns=2,tool=write@@"))
            assert text_of("openai_chat", reply, False) == "Done after 1 turns."

    asyncio.run(story())


def test_made_up_arguments_fit_the_schema() -> None:
    from retinue.testing.fake_llm.script import sample

    schema = {
        "type": "object",
        "properties": {
            "s": {"type": "string"},
            "i": {"type": "integer"},
            "n": {"type": "number"},
            "b": {"type": "boolean"},
            "z": {"type": "null"},
            "a": {"type": "array", "items": {"type": ["string", "null"]}},
            "o": {"type": "OBJECT", "properties": {"x": {"enum": ["p", "q"]}}, "required": ["x"]},
            "left": {"type": "string"},
        },
        "required": ["s", "i", "n", "b", "z", "a", "o"],
    }
    assert sample(schema, 3) == {
        "s": "3",
        "i": 3,
        "n": 3,
        "b": True,
        "z": None,
        "a": ["3"],
        "o": {"x": "p"},
    }


def usage_of(dialect: str, texts: dict[str, Any]) -> tuple[int, int]:
    """All input, and what was read from the cache."""
    usage = texts["usageMetadata" if dialect == "gemini" else "usage"]
    match dialect:
        case "anthropic":
            read = usage["cache_read_input_tokens"]
            return usage["input_tokens"] + usage["cache_creation_input_tokens"] + read, read
        case "openai_chat":
            return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        case "openai_responses":
            return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
        case _:
            return usage["promptTokenCount"], usage.get("cachedContentTokenCount", 0)


def marked(dialect: str, post: Post) -> Post:
    """With a cache breakpoint on the last block, where the dialect has such."""
    if dialect == "anthropic":
        last = post.body["messages"][-1]
        if isinstance(last["content"], str):
            last["content"] = [{"type": "text", "text": last["content"]}]
        last["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return post


@pytest.mark.parametrize("dialect", ALL)
def test_a_prefix_that_was_seen_before_is_read_from_the_cache(dialect: str) -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            results = []
            for n in range(3):
                text = (
                    await send(llm, marked(dialect, good(dialect, text="x" * 400, turns=n)))
                ).json
                results.append(usage_of(dialect, text))
            (first, none), (second, some), (third, more) = results
            assert none == 0
            assert first < second < third
            assert abs(some - first) <= 1
            assert abs(more - second) <= 1
            other = usage_of(
                dialect, (await send(llm, marked(dialect, good(dialect, text="y" * 400)))).json
            )
            assert other[1] < 100, "only the tools are the same"
            text = (
                await send(llm, marked(dialect, good(dialect, model="other", text="x" * 400)))
            ).json
            assert usage_of(dialect, text)[1] == 0, "each model has its own cache"

    asyncio.run(story())


def test_four_characters_are_a_token() -> None:
    async def story() -> None:
        async with FakeLLM(["y" * 40]) as llm:
            post = good("openai_chat", text="x" * 400)
            post.body = {"messages": [{"role": "user", "content": "x" * 400}], "max_tokens": 5}
            assert (await send(llm, post)).json["usage"]["prompt_tokens"] == 100
            assert (await send(llm, post)).json["usage"]["completion_tokens"] == 5, (
                "no more than was asked for"
            )
            del post.body["max_tokens"]
            assert (await send(llm, post)).json["usage"]["completion_tokens"] == 11

    asyncio.run(story())


def test_anthropic_caches_only_where_it_is_asked_to() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            for _ in range(2):
                usage = (await send(llm, good("anthropic", text="x" * 400))).json["usage"]
                assert (usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]) == (
                    0,
                    0,
                )
            long_text = (
                await send(llm, marked("anthropic", good("anthropic", text="x" * 400)))
            ).json["usage"]
            assert (long_text["cache_read_input_tokens"], long_text["input_tokens"]) == (0, 0)
            assert long_text["cache_creation_input_tokens"] > 100
            top = good("anthropic", text="x" * 400, cache_control={"type": "ephemeral"})
            assert (await send(llm, top)).json["usage"]["cache_read_input_tokens"] > 100

    asyncio.run(story())


def test_anthropic_looks_back_twenty_blocks_for_a_cached_prefix() -> None:
    def wide(n: int) -> Post:
        post = good("anthropic", text="x" * 400)
        uses = [{"type": "tool_use", "id": f"t{i}", "name": "read", "input": {}} for i in range(n)]
        results = [
            {"type": "tool_result", "tool_use_id": f"t{i}", "content": "y"} for i in range(n)
        ]
        post.body["messages"] += [
            {"role": "assistant", "content": uses},
            {"role": "user", "content": results},
        ]
        return marked("anthropic", post)

    async def story() -> None:
        for n, is_hit in [(5, True), (12, False)]:
            async with FakeLLM() as llm:
                await send(llm, marked("anthropic", good("anthropic", text="x" * 400)))
                usage = (await send(llm, wide(n))).json["usage"]
                assert (usage["cache_read_input_tokens"] > 0) == is_hit

    asyncio.run(story())


def test_the_cache_forgets_what_is_oldest() -> None:
    async def story() -> None:
        async with FakeLLM(settings=FakeSettings(n_prefixes=4)) as llm:
            for text in ("a", "b", "c", "d"):
                await send(llm, good("openai_chat", text=text * 400))
            texts = (await send(llm, good("openai_chat", text="a" * 400))).json
            assert usage_of("openai_chat", texts)[1] < 100
            assert len(llm._cache._seen) == 4

    asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_a_stream_comes_in_a_handful_of_writes_unless_more_are_asked_for(dialect: str) -> None:
    async def story() -> None:
        for chunks in (1, 3, 50):
            async with FakeLLM(["x" * 300], chunks=chunks) as llm:
                reply = await send(llm, good(dialect, stream=True))
                n_writes = reply.rest.count(b"\r\n", 0) and len(list(_chunks(reply.rest)))
                assert n_writes <= chunks
                assert n_writes >= min(chunks, 50) // 2
                assert text_of(dialect, reply, True) == "x" * 300

    asyncio.run(story())


def _chunks(rest: bytes) -> list[bytes]:
    results = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        n = int(size, 16)
        if n:
            results.append(rest[:n])
        rest = rest[n + 2 :]
    return results
