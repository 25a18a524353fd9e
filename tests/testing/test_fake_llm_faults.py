"""Faults that the fake provider tells in words: a status, or an error inside a stream."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from retinue.testing.fake_llm.fake_provider import FAULTS, FakeLLM
from tests.testing.fake_llm_faults_support import BOTH, FAST, TEXT, at, hit, is_ended, with_dialects
from tests.testing.fake_llm_support import ALL, KEY, Got, Post, good, send, text_of
from tests.waiting import until

OPENAI = ("openai_chat", "openai_responses")
Row = tuple[int, dict[str, str], dict[str, Any]]
STATUSES: dict[str, dict[str, Row]] = {
    "F1": {
        "anthropic": (
            429,
            {"retry-after": "7"},
            {"type": "error", "error.type": "rate_limit_error"},
        ),
        "openai": (
            429,
            {"retry-after-ms": "1500", "x-ratelimit-reset-tokens": "6m0s"},
            {
                "error.code": "rate_limit_exceeded",
                "error.type": "tokens",
                "error.param": None,
                "error.message": "Rate limit reached for m. Please try again in 1.5s.",
            },
        ),
        "gemini": (
            429,
            {},
            {
                "error.code": 429,
                "error.status": "RESOURCE_EXHAUSTED",
                "error.details.0": {
                    "@type": "type.googleapis.com/google.rpc.RetryInfo",
                    "retryDelay": "34s",
                },
            },
        ),
    },
    "F2": {
        "anthropic": (
            429,
            {"retry-after": ""},
            {
                "error.type": "rate_limit_error",
                "error.details.error_code": "enforced_spend_limit_reached",
            },
        ),
        "openai": (429, {"retry-after-ms": ""}, {"error.code": "insufficient_quota"}),
        "gemini": (
            429,
            {},
            {
                "error.status": "RESOURCE_EXHAUSTED",
                "error.details.0.violations.0.quotaId": (
                    "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
                ),
            },
        ),
    },
    "F2b": {
        "anthropic": (402, {}, {"error.type": "billing_error"}),
        "openai": (429, {}, {"error.code": "billing_not_active"}),
        "gemini": (400, {}, {"error.status": "FAILED_PRECONDITION"}),
    },
    "F2c": {"anthropic": (400, {}, {"error.message": "...credit balance is too low"})},
    "F3": {
        "anthropic": (529, {}, {"error": {"type": "overloaded_error", "message": "Overloaded"}}),
        "openai": (503, {}, {"error.code": "server_is_overloaded"}),
        "gemini": (
            503,
            {},
            {
                "error.status": "UNAVAILABLE",
                "error.message": "The model is overloaded. Please try again later.",
            },
        ),
    },
    "F3b": {"openai": (503, {}, {"error.code": "slow_down"})},
    "F6": {
        "anthropic": (500, {}, {"error.type": "api_error"}),
        "openai": (500, {}, {"error.type": "server_error"}),
        "gemini": (500, {}, {"error.status": "INTERNAL"}),
    },
    "F9": {
        "anthropic": (504, {}, {"error.type": "timeout_error"}),
        "openai": (504, {}, {"error.type": "server_error"}),
        "gemini": (504, {}, {"error.status": "DEADLINE_EXCEEDED"}),
    },
    "F10": {
        "anthropic": (401, {}, {"error.type": "authentication_error"}),
        "openai": (401, {}, {"error.code": "invalid_api_key"}),
        "gemini": (400, {}, {"error.details.0.reason": "API_KEY_INVALID"}),
    },
    "F10b": {
        "anthropic": (403, {}, {"error.type": "permission_error", "error.message": f"...{KEY}"}),
        "openai": (403, {}, {"error.message": f"...{KEY}"}),
        "gemini": (403, {}, {"error.status": "PERMISSION_DENIED", "error.message": f"...{KEY}"}),
    },
    "F11": {
        "anthropic": (404, {}, {"error.type": "not_found_error"}),
        "openai": (404, {}, {"error.code": "model_not_found"}),
        "gemini": (404, {}, {"error.status": "NOT_FOUND"}),
    },
    "F12": {
        "anthropic": (
            400,
            {},
            {"error.message": "prompt is too long: 208310 tokens > 200000 maximum"},
        ),
        "openai": (400, {}, {"error.code": "context_length_exceeded"}),
        "gemini": (
            400,
            {},
            {
                "error.status": "INVALID_ARGUMENT",
                "error.message": "...input token count (208310) exceeds",
            },
        ),
    },
    "F12c": {
        "gemini": (500, {}, {"error.status": "INTERNAL", "error.message": "...exceeds the maximum"})
    },
    "F13": {
        "anthropic": (413, {}, {"error.type": "request_too_large"}),
        "openai": (413, {}, {"error.type": "invalid_request_error"}),
        "gemini": (413, {}, {"error.code": 413}),
    },
    "F14": {
        "anthropic": (
            400,
            {},
            {
                "error.message": "...messages.19: `tool_use` ids were found without `tool_result` "
                "blocks immediately "
                "after: toolu_01"
            },
        ),
        "openai": (400, {}, {"error.message": "...call_1"}),
        "gemini": (400, {}, {"error.message": "...number of function response parts"}),
    },
    "F16": {
        "anthropic": (400, {}, {"error.message": "...tools.0.custom.input_schema: "}),
        "openai": (
            400,
            {},
            {"error.code": "invalid_function_parameters", "error.message": "...'read'"},
        ),
        "gemini": (400, {}, {"error.message": '...Unknown name "$schema" at'}),
    },
}


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize(("name", "dialect"), with_dialects(*STATUSES))
def test_a_fault_with_a_status_is_told_in_the_words_of_the_provider(
    name: str, dialect: str, stream: bool
) -> None:
    status, headers, text = STATUSES[name]["openai" if dialect in OPENAI else dialect]
    reply = hit(name, dialect, stream)
    assert (reply.status, reply.headers["content-type"]) == (status, "application/json")
    for field, value in headers.items():
        assert reply.headers.get(field, "") == value
    for path, value in text.items():
        part = at(reply.json, path)
        if isinstance(value, str) and value.startswith("..."):
            assert value[3:] in part
        else:
            assert part == value
    if name != "F10b":
        assert KEY not in reply.raw.decode()


def test_the_two_dialects_of_openai_say_differently_that_a_result_is_missing() -> None:
    assert (
        "must be followed by tool messages"
        in hit("F14", "openai_chat", False).json["error"]["message"]
    )
    assert (
        "No tool output found for function call call_1"
        in hit("F14", "openai_responses", False).json["error"]["message"]
    )


def test_the_time_to_wait_can_be_chosen() -> None:
    settings = replace(FAST, retry_after_seconds=0.25)
    assert hit("F1", "anthropic", False, settings=settings).headers["retry-after"] == "0.25"
    assert hit("F1", "openai_chat", False, settings=settings).headers["retry-after-ms"] == "250"
    assert (
        hit("F1", "gemini", False, settings=settings).json["error"]["details"][0]["retryDelay"]
        == "0.25s"
    )


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(
    ("name", "status"), [("F7", 502), ("F7b", 504), ("F7c", 520), ("F13b", 413)]
)
def test_f7_and_f13b_are_pages_of_a_proxy(dialect: str, name: str, status: int) -> None:
    reply = hit(name, dialect, True)
    assert (reply.status, reply.headers["content-type"]) == (status, "text/html; charset=UTF-8")
    assert reply.body.startswith(b"<html>")
    assert b"cloudflare" in reply.body


@pytest.mark.parametrize("dialect", ALL)
def test_f4_tells_of_overload_after_three_deltas(dialect: str) -> None:
    reply = hit("F4", dialect, True)
    assert reply.status == 200
    assert reply.is_whole
    assert not is_ended(dialect, reply)
    assert 0 < len(text_of_partial(dialect, reply)) < len(TEXT)
    name, data = reply.events[-1]
    value = json.loads(data)
    match dialect:
        case "anthropic":
            assert name == "error"
            assert value == {
                "type": "error",
                "error": {"type": "overloaded_error", "message": "Overloaded"},
            }
            assert sum(event == "content_block_delta" for event, _ in reply.events) == 3
        case "openai_responses":
            assert (name, value["type"], value["response"]["status"]) == (
                "response.failed",
                "response.failed",
                "failed",
            )
            assert value["response"]["error"]["code"] == "server_is_overloaded"
            assert [d["sequence_number"] for d in reply.datas] == list(range(len(reply.datas)))
        case "openai_chat":
            assert value["error"]["code"] == "server_is_overloaded"
        case _:
            assert (value["error"]["code"], value["error"]["status"]) == (503, "UNAVAILABLE")
            assert len(reply.events) == 4
    assert hit("F4", dialect, False).status in (529, 503)


def text_of_partial(dialect: str, reply: Got) -> str:
    """The text before the error."""
    ok = [(name, data) for name, data in reply.events if '"error":{' not in data]
    part = "".join(f"event: {name}\ndata: {data}\n\n" for name, data in ok)
    return text_of(dialect, Got(b"HTTP/1.1 200 OK\r\n\r\n" + part.encode(), "fin"), True)


@pytest.mark.parametrize("dialect", ALL)
def test_f5_is_an_error_before_any_text(dialect: str) -> None:
    reply = hit("F5", dialect, True)
    assert reply.status == 200
    assert reply.is_whole
    name, data = reply.events[-1]
    value = json.loads(data)
    match dialect:
        case "anthropic":
            assert (name, value["type"], value["error"]["type"]) == ("error", "error", "api_error")
        case "openai_responses":
            assert name == "error"
            assert set(value) == {"type", "code", "message", "param", "sequence_number"}
            assert (value["type"], value["code"], value["sequence_number"]) == (
                "error",
                "server_error",
                len(reply.events) - 1,
            )
        case "openai_chat":
            assert value["error"]["type"] == "server_error"
        case _:
            assert (value["error"]["code"], value["error"]["status"]) == (500, "INTERNAL")
    assert text_of_partial(dialect, reply) == ""
    assert hit("F5", dialect, False).status == 500


def test_f12b_says_inside_the_stream_that_the_conversation_is_too_long() -> None:
    name, data = hit("F12b", "openai_responses", True).events[-1]
    assert (name, json.loads(data)["response"]["error"]["code"]) == (
        "response.failed",
        "context_length_exceeded",
    )
    text = hit("F12b", "openai_responses", False).json
    assert (text["status"], text["error"]["code"]) == ("failed", "context_length_exceeded")


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"F18", "F20", "F54"}))
def test_each_fault_is_over_when_it_is_over(name: str) -> None:
    """After it the same server answers well, in each dialect, streaming and not; and none of them
    leaks a request."""

    async def story() -> None:
        async with FakeLLM(
            [TEXT], settings=replace(FAST, long_text=1000, huge_bytes=1000, bomb_bytes=1 << 20)
        ) as llm:
            for dialect in FAULTS[name].dialects:
                for stream in BOTH:
                    post = good(
                        dialect,
                        stream=stream,
                        text=f"{dialect} {stream}",
                        model=f"fault-{name}-then-ok",
                    )
                    bad = await send(llm, post)
                    llm._outage_until = 0.0
                    reply = await send(llm, post)
                    assert text_of(dialect, reply, stream) == TEXT
                    assert FAULTS[name].outcome == "OK" or bad.raw != reply.raw
            assert (llm.open, llm.violations) == (0, [])
            await until(lambda: llm.connected == 0)

    asyncio.run(story())


def test_a_fault_does_not_hide_a_request_that_is_wrong() -> None:
    async def story() -> None:
        async with FakeLLM(faults=lambda request, n: "F19") as llm:
            post: Post = good("anthropic", max_tokens=0)
            assert (await send(llm, post)).status == 400
            assert len(llm.violations) == 1

    asyncio.run(story())
