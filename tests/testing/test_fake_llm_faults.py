"""Each row of the catalogue of faults, byte by byte: what comes, and how it ends."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from retinue.models.sse import Events
from retinue.testing import call
from retinue.testing.fake_llm import FAULTS, FakeLLM, Settings
from tests.testing.fake_llm_support import ALL, KEY, Got, Post, calls_of, connect, good, send, text_of, until, wire

BOTH = [False, True]
FAST = Settings(
    drip_seconds=0.0,
    settle_seconds=0.005,
    huge_bytes=3 << 20,
    bomb_bytes=8 << 20,
    header_bytes=100_000,
    long_text=100_000,
)
TEXT = "Grüße aus der Küche, 你好, and a good day to you."
CALLS = [call("read", path="a.txt", options={"policy": "inherit"}), call("read", path="b.txt")]
OPENAI = ("openai_chat", "openai_responses")


def hit(
    name: str,
    dialect: str,
    stream: bool,
    script: Sequence[Any] = (TEXT,),
    settings: Settings = FAST,
    first: float = 10.0,
    quiet: float = 10.0,
) -> Got:
    async def story() -> Got:
        async with FakeLLM(script, settings=settings) as llm:
            post = good(dialect, stream=stream)
            post.headers["x-fault"] = name
            got = await send(llm, post, first=first, quiet=quiet)
            assert llm.injected == [(1, name)]
            assert llm.violations == []
            return got

    return asyncio.run(story())


def with_dialects(*names: str) -> list[tuple[str, str]]:
    return [(name, dialect) for name in names for dialect in FAULTS[name].dialects]


def at(value: Any, path: str) -> Any:
    for step in path.split("."):
        value = value[int(step)] if step.isdigit() else value[step]
    return value


def is_ended(dialect: str, got: Got) -> bool:
    """Whether the reply says that it is complete."""
    match dialect:
        case "anthropic":
            return b"event: message_stop" in got.body
        case "openai_chat":
            return b"data: [DONE]" in got.body
        case "openai_responses":
            return b"event: response.completed" in got.body
        case _:
            return b"finishReason" in got.body


Row = tuple[int, dict[str, str], dict[str, Any]]
STATUSES: dict[str, dict[str, Row]] = {
    "F1": {
        "anthropic": (429, {"retry-after": "7"}, {"type": "error", "error.type": "rate_limit_error"}),
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
                "error.details.0": {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"},
            },
        ),
    },
    "F2": {
        "anthropic": (
            429,
            {"retry-after": ""},
            {"error.type": "rate_limit_error", "error.details.error_code": "enforced_spend_limit_reached"},
        ),
        "openai": (429, {"retry-after-ms": ""}, {"error.code": "insufficient_quota"}),
        "gemini": (
            429,
            {},
            {
                "error.status": "RESOURCE_EXHAUSTED",
                "error.details.0.violations.0.quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
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
            {"error.status": "UNAVAILABLE", "error.message": "The model is overloaded. Please try again later."},
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
        "anthropic": (400, {}, {"error.message": "prompt is too long: 208310 tokens > 200000 maximum"}),
        "openai": (400, {}, {"error.code": "context_length_exceeded"}),
        "gemini": (
            400,
            {},
            {"error.status": "INVALID_ARGUMENT", "error.message": "...input token count (208310) exceeds"},
        ),
    },
    "F12c": {"gemini": (500, {}, {"error.status": "INTERNAL", "error.message": "...exceeds the maximum"})},
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
                "error.message": "...messages.19: `tool_use` ids were found without `tool_result` blocks immediately "
                "after: toolu_01"
            },
        ),
        "openai": (400, {}, {"error.message": "...call_1"}),
        "gemini": (400, {}, {"error.message": "...number of function response parts"}),
    },
    "F16": {
        "anthropic": (400, {}, {"error.message": "...tools.0.custom.input_schema: "}),
        "openai": (400, {}, {"error.code": "invalid_function_parameters", "error.message": "...'read'"}),
        "gemini": (400, {}, {"error.message": '...Unknown name "$schema" at'}),
    },
}


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize(("name", "dialect"), with_dialects(*STATUSES))
def test_a_fault_with_a_status_is_told_in_the_words_of_the_provider(name: str, dialect: str, stream: bool) -> None:
    status, headers, told = STATUSES[name]["openai" if dialect in OPENAI else dialect]
    got = hit(name, dialect, stream)
    assert (got.status, got.headers["content-type"]) == (status, "application/json")
    for field, value in headers.items():
        assert got.headers.get(field, "") == value
    for path, value in told.items():
        found = at(got.json, path)
        if isinstance(value, str) and value.startswith("..."):
            assert value[3:] in found
        else:
            assert found == value
    if name != "F10b":
        assert KEY not in got.raw.decode()


def test_the_two_dialects_of_openai_say_differently_that_a_result_is_missing() -> None:
    assert "must be followed by tool messages" in hit("F14", "openai_chat", False).json["error"]["message"]
    assert (
        "No tool output found for function call call_1"
        in hit("F14", "openai_responses", False).json["error"]["message"]
    )


def test_the_time_to_wait_can_be_chosen() -> None:
    settings = replace(FAST, retry_after_seconds=0.25)
    assert hit("F1", "anthropic", False, settings=settings).headers["retry-after"] == "0.25"
    assert hit("F1", "openai_chat", False, settings=settings).headers["retry-after-ms"] == "250"
    assert hit("F1", "gemini", False, settings=settings).json["error"]["details"][0]["retryDelay"] == "0.25s"


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(("name", "status"), [("F7", 502), ("F7b", 504), ("F7c", 520), ("F13b", 413)])
def test_f7_and_f13b_are_pages_of_a_proxy(dialect: str, name: str, status: int) -> None:
    got = hit(name, dialect, True)
    assert (got.status, got.headers["content-type"]) == (status, "text/html; charset=UTF-8")
    assert got.body.startswith(b"<html>")
    assert b"cloudflare" in got.body


@pytest.mark.parametrize("dialect", ALL)
def test_f4_tells_of_overload_after_three_deltas(dialect: str) -> None:
    got = hit("F4", dialect, True)
    assert got.status == 200
    assert got.is_whole
    assert not is_ended(dialect, got)
    assert 0 < len(text_of_partial(dialect, got)) < len(TEXT)
    name, data = got.events[-1]
    told = json.loads(data)
    match dialect:
        case "anthropic":
            assert name == "error"
            assert told == {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            assert sum(event == "content_block_delta" for event, _ in got.events) == 3
        case "openai_responses":
            assert (name, told["type"], told["response"]["status"]) == ("response.failed", "response.failed", "failed")
            assert told["response"]["error"]["code"] == "server_is_overloaded"
            assert [d["sequence_number"] for d in got.datas] == list(range(len(got.datas)))
        case "openai_chat":
            assert told["error"]["code"] == "server_is_overloaded"
        case _:
            assert (told["error"]["code"], told["error"]["status"]) == (503, "UNAVAILABLE")
            assert len(got.events) == 4
    assert hit("F4", dialect, False).status in (529, 503)


def text_of_partial(dialect: str, got: Got) -> str:
    """The text before the error."""
    ok = [(name, data) for name, data in got.events if '"error":{' not in data]
    part = "".join(f"event: {name}\ndata: {data}\n\n" for name, data in ok)
    return text_of(dialect, Got(b"HTTP/1.1 200 OK\r\n\r\n" + part.encode(), "fin"), True)


@pytest.mark.parametrize("dialect", ALL)
def test_f5_is_an_error_before_any_text(dialect: str) -> None:
    got = hit("F5", dialect, True)
    assert got.status == 200
    assert got.is_whole
    name, data = got.events[-1]
    told = json.loads(data)
    match dialect:
        case "anthropic":
            assert (name, told["type"], told["error"]["type"]) == ("error", "error", "api_error")
        case "openai_responses":
            assert name == "error"
            assert set(told) == {"type", "code", "message", "param", "sequence_number"}
            assert (told["type"], told["code"], told["sequence_number"]) == (
                "error",
                "server_error",
                len(got.events) - 1,
            )
        case "openai_chat":
            assert told["error"]["type"] == "server_error"
        case _:
            assert (told["error"]["code"], told["error"]["status"]) == (500, "INTERNAL")
    assert text_of_partial(dialect, got) == ""
    assert hit("F5", dialect, False).status == 500


def test_f12b_says_inside_the_stream_that_the_conversation_is_too_long() -> None:
    name, data = hit("F12b", "openai_responses", True).events[-1]
    assert (name, json.loads(data)["response"]["error"]["code"]) == ("response.failed", "context_length_exceeded")
    said = hit("F12b", "openai_responses", False).json
    assert (said["status"], said["error"]["code"]) == ("failed", "context_length_exceeded")


@pytest.mark.parametrize("dialect", ALL)
def test_f18_takes_the_request_and_never_answers(dialect: str) -> None:
    got = hit("F18", dialect, True, first=0.1)
    assert (got.raw, got.end) == (b"", "open")
    assert hit("F18", dialect, True, settings=replace(FAST, stall_seconds=0.02)).end == "rst"


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f19_resets_before_any_header(dialect: str, stream: bool) -> None:
    got = hit("F19", dialect, stream)
    assert (got.raw, got.end) == (b"", "rst")


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f20_goes_silent_in_the_middle(dialect: str, stream: bool) -> None:
    got = hit("F20", dialect, stream, quiet=0.1)
    assert (got.status, got.end) == (200, "open")
    assert not got.is_whole
    if stream:
        assert 0 < len(text_of(dialect, got, True)) < len(TEXT)
        assert not is_ended(dialect, got)


def test_a_client_that_leaves_a_stalled_stream_is_counted() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            reader, writer = await connect(llm)
            post = good("anthropic", stream=True)
            post.headers["x-fault"] = "F20"
            writer.write(wire(post))
            await reader.readuntil(b"content_block_delta")
            assert (llm.open, llm.disconnects) == (1, 0)
            writer.transport.abort()
            await until(lambda: llm.open == 0)
            assert llm.disconnects == 1

    asyncio.run(story())


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("name", ["F22", "F26"])
@pytest.mark.parametrize("dialect", ALL)
def test_f22_and_f26_come_byte_by_byte_and_are_complete(dialect: str, name: str, stream: bool) -> None:
    got = hit(name, dialect, stream)
    assert got.is_whole
    assert text_of(dialect, got, stream) == TEXT


def test_f22_takes_its_time() -> None:
    async def story() -> None:
        async with FakeLLM(["x"], settings=replace(FAST, drip_seconds=0.05)) as llm:
            reader, writer = await connect(llm)
            post = good("gemini", stream=True)
            post.headers["x-fault"] = "F22"
            writer.write(wire(post))
            await reader.readuntil(b"\r\n\r\n")
            began = asyncio.get_running_loop().time()
            sizes = [len(await reader.read(1000)) for _ in range(4)]
            assert asyncio.get_running_loop().time() - began >= 0.14
            assert max(sizes) <= 20, "nearly one by one, even on a busy machine"
            writer.transport.abort()

    asyncio.run(story())


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f23_closes_before_the_end_of_the_reply(dialect: str, stream: bool) -> None:
    got = hit("F23", dialect, stream)
    assert (got.status, got.end, got.headers["connection"]) == (200, "fin", "close")
    assert not {"content-length", "transfer-encoding"} & set(got.headers)
    if stream:
        assert not is_ended(dialect, got)
        assert text_of(dialect, got, True)
        if dialect == "openai_chat":
            assert got.datas[-1]["choices"][0]["finish_reason"] == "stop", "only [DONE] is missing"
        if dialect == "anthropic":
            assert got.events[-1][0] == "message_delta", "only message_stop is missing"
    else:
        with pytest.raises(ValueError, match=r"."):
            _ = got.json


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f23b_is_complete_as_http_and_not_as_a_reply(dialect: str, stream: bool) -> None:
    got = hit("F23b", dialect, stream)
    assert got.is_whole
    if stream:
        assert not is_ended(dialect, got)
    else:
        with pytest.raises(ValueError, match=r"."):
            _ = got.json


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f24_cuts_a_chunk_and_f24b_a_length(dialect: str, stream: bool) -> None:
    got = hit("F24", dialect, stream)
    assert (got.end, got.headers["transfer-encoding"], got.is_whole) == ("fin", "chunked", False)
    size = int(got.rest.partition(b"\r\n")[0], 16)
    assert 0 < len(got.rest.partition(b"\r\n")[2]) < size
    got = hit("F24b", dialect, stream)
    assert (got.end, got.is_whole) == ("fin", False)
    assert 0 < len(got.rest) < int(got.headers["content-length"])


@pytest.mark.parametrize("script", [(TEXT,), (CALLS,)])
@pytest.mark.parametrize("dialect", ALL)
def test_f25_resets_inside_a_call(dialect: str, script: Sequence[Any]) -> None:
    got = hit("F25", dialect, True, script)
    assert (got.status, got.end) == (200, "rst")
    assert not is_ended(dialect, got)
    tail = got.body.decode()
    match dialect:
        case "anthropic":
            assert got.events[-1][0] == "content_block_start"
            assert got.datas[-1]["content_block"]["type"] == "tool_use"
        case "openai_responses":
            assert got.events[-1][0] == "response.function_call_arguments.delta"
        case "openai_chat":
            assert got.datas[-1]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]
        case _:
            assert "functionCall" in tail
            assert not tail.endswith("}\r\n\r\n")
    got = hit("F25", dialect, False, script)
    assert (got.end, got.is_whole) == ("rst", False)


@pytest.mark.parametrize("script", [(TEXT,), (CALLS,)])
@pytest.mark.parametrize("dialect", ALL)
def test_f27_is_odd_but_says_the_same(dialect: str, script: Sequence[Any]) -> None:
    got = hit("F27", dialect, True, script)
    body = got.body
    assert body.startswith(b"\xef\xbb\xbf: ")
    for needle in (
        b"\r",
        b"\r\n",
        b"data:{",
        b"retry: 3000",
        b"\n: between",
        b"id: 1",
        b"unknown-field: x",
        b"future_field",
    ):
        assert needle in body, needle
    whole = _events(body)
    assert b"".join(body[n : n + 1] for n in range(len(body))) == body
    assert _events(body, size=1) == whole
    plain = [data for _, data in hit_plain(dialect, script).events]
    known = [data for data in whole if b'"future":' not in data]
    assert len(known) == len(plain)
    for odd, even in zip(known, plain, strict=True):
        if even == "[DONE]":
            assert odd == b"[DONE]"
            continue
        found, wanted = json.loads(odd), json.loads(even)
        assert found.pop("future_field") == {"a": None}
        assert {**found, "sequence_number": 0} == {**wanted, "sequence_number": 0}
    if dialect in ("anthropic", "openai_responses"):
        assert len(whole) == len(plain) + 1
    if dialect == "openai_responses":
        assert [json.loads(data)["sequence_number"] for data in whole] == list(range(len(whole)))
    assert json.loads(hit("F27", dialect, False, script).body)["future_field"]


def _events(body: bytes, size: int = 1 << 20) -> list[bytes]:
    events = Events()
    found = [data for at in range(0, len(body), size) for _, data in events.feed(body[at : at + size])]
    return found + [data for _, data in events.rest()]


def hit_plain(dialect: str, script: Sequence[Any]) -> Got:
    async def story() -> Got:
        async with FakeLLM(script) as llm:
            return await send(llm, good(dialect, stream=True))

    return asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_f28_has_one_event_that_is_no_json_and_then_goes_on_well(dialect: str) -> None:
    got = hit("F28", dialect, True)
    assert got.is_whole
    assert is_ended(dialect, got)
    bad = [n for n, (_, data) in enumerate(got.events) if data == '{"type":"content_block']
    assert len(bad) == 1
    assert 0 < bad[0] < len(got.events) - 1
    got = hit("F28", dialect, False)
    assert got.is_whole
    with pytest.raises(ValueError, match=r"."):
        _ = got.json


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f30_is_one_huge_line(dialect: str, stream: bool) -> None:
    got = hit("F30", dialect, stream)
    assert got.is_whole
    longest = max(got.body.split(b"\n"), key=len)
    assert len(longest) > FAST.huge_bytes
    if stream:
        assert longest.startswith(b"data: ")
        json.loads(longest[6:])


def test_f30_is_20_mib_unless_told_otherwise() -> None:
    assert (Settings().huge_bytes, Settings().bomb_bytes, Settings().header_bytes) == (20 << 20, 10 << 30, 1 << 20)
    assert (Settings().drip_seconds, Settings().outage_seconds, Settings().n_storm) == (5.0, 1800.0, 200)


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f31_unpacks_to_a_thousand_times_its_size(dialect: str, stream: bool) -> None:
    got = hit("F31", dialect, stream)
    assert got.headers["content-encoding"] == "gzip"
    unpacked = zlib.decompressobj(31).decompress(got.body)
    assert len(unpacked) == FAST.bomb_bytes
    assert len(unpacked) > 300 * len(got.body)


def test_f31_stops_when_the_client_does() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            reader, writer = await connect(llm)
            post = good("anthropic", stream=True)
            post.headers["x-fault"] = "F31"
            writer.write(wire(post))
            await reader.readexactly(100_000)
            await until(lambda: llm.open == 1)
            writer.transport.abort()
            await until(lambda: llm.open == 0)
            assert llm.disconnects == 1

    asyncio.run(story())


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f31b_says_gzip_and_is_not(dialect: str, stream: bool) -> None:
    got = hit("F31b", dialect, stream)
    assert got.headers["content-encoding"] == "gzip"
    assert text_of(dialect, got, stream) == TEXT


@pytest.mark.parametrize("dialect", ALL)
def test_f32_sends_one_delta_twice(dialect: str) -> None:
    got = hit("F32", dialect, True)
    datas = [data for _, data in got.events]
    twins = [n for n in range(1, len(datas)) if datas[n] == datas[n - 1]]
    assert len(twins) == 1
    assert len(text_of(dialect, got, True)) > len(TEXT)
    got = hit("F32", dialect, True, (CALLS,))
    datas = [data for _, data in got.events]
    assert sum(datas[n] == datas[n - 1] for n in range(1, len(datas))) == 1
    if dialect in ("anthropic", "openai_chat"):
        with pytest.raises(ValueError, match=r"."):
            json.loads(calls_of(dialect, got, True)[0][1])
    assert text_of(dialect, hit("F32", dialect, False), False) == TEXT


@pytest.mark.parametrize("name", ["F34", "F34b"])
@pytest.mark.parametrize("dialect", ALL)
def test_f34_has_two_ends(dialect: str, name: str) -> None:
    got = hit(name, dialect, True)
    ends = {
        "anthropic": b"event: message_stop",
        "openai_chat": b"data: [DONE]",
        "openai_responses": b"event: response.completed",
        "gemini": b"finishReason",
    }
    assert got.body.count(ends[dialect]) == 2
    assert (b"This came too late." in got.body) == (name == "F34b")
    if dialect == "openai_responses":
        assert [d["sequence_number"] for d in got.datas] == list(range(len(got.datas)))
    assert text_of(dialect, hit(name, dialect, False), False) == TEXT


@pytest.mark.parametrize("dialect", ALL)
def test_f35_leads_elsewhere(dialect: str) -> None:
    got = hit("F35", dialect, True)
    assert (got.status, got.headers["location"]) == (307, "http://evil.test/")
    chosen = hit("F35", dialect, False, settings=replace(FAST, elsewhere="http://127.0.0.1:9/"))
    assert chosen.headers["location"] == "http://127.0.0.1:9/"


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f36_has_a_giant_header_and_is_good_otherwise(dialect: str, stream: bool) -> None:
    got = hit("F36", dialect, stream)
    assert len(got.headers["x-giant"]) == FAST.header_bytes
    assert text_of(dialect, got, stream) == TEXT


def final(dialect: str, got: Got, stream: bool) -> dict[str, Any]:
    """What the reply says about its own end: reason, output, usage."""
    if not stream:
        return dict(got.json)
    match dialect:
        case "anthropic":
            return dict(next(d for d in got.datas if d["type"] == "message_delta")["delta"])
        case "openai_responses":
            return dict(got.datas[-1]["response"])
        case _:
            return dict(got.datas[-1])


def reason(dialect: str, got: Got, stream: bool) -> Any:
    said = final(dialect, got, stream)
    match dialect:
        case "anthropic":
            return said["stop_reason"]
        case "openai_chat":
            return said["choices"][0]["finish_reason"]
        case "openai_responses":
            return said["status"], (said["incomplete_details"] or {}).get("reason")
        case _:
            candidates = said.get("candidates", [{}])
            return said.get("promptFeedback", {}).get("blockReason") or candidates[0].get("finishReason")


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f38_has_no_content(dialect: str, stream: bool) -> None:
    got = hit("F38", dialect, stream)
    assert text_of(dialect, got, stream) == ""
    assert calls_of(dialect, got, stream) == []
    match dialect:
        case "anthropic":
            assert reason(dialect, got, stream) == "end_turn"
            assert stream or got.json["content"] == []
        case "openai_responses":
            assert final(dialect, got, stream)["output"] == []
        case "gemini":
            assert "candidates" not in final(dialect, got, stream)
            twin = final(dialect, hit("F38b", dialect, stream), stream)
            assert (twin["candidates"][0]["content"], twin["candidates"][0]["finishReason"]) == ({}, "STOP")
        case _:
            assert reason(dialect, got, stream) == "stop"


@pytest.mark.parametrize("script", [(TEXT,), (CALLS,)])
@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f39_cuts_a_call_by_length(dialect: str, stream: bool, script: Sequence[Any]) -> None:
    got = hit("F39", dialect, stream, script)
    found = reason(dialect, got, stream)
    match dialect:
        case "anthropic":
            assert found == "max_tokens"
        case "openai_chat":
            assert found == "length"
        case "openai_responses":
            assert found == ("incomplete", "max_output_tokens")
            assert final(dialect, got, stream)["output"][-1]["status"] == "incomplete"
            assert not stream or got.events[-1][0] == "response.incomplete"
        case _:
            assert found == "MAX_TOKENS"
            return
    args = calls_of(dialect, got, stream)[-1][1]
    if dialect == "anthropic" and not stream:
        assert args == "{}"
    else:
        with pytest.raises(ValueError, match=r"."):
            json.loads(args)


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f39b_cuts_a_text_by_length(dialect: str, stream: bool) -> None:
    got = hit("F39b", dialect, stream)
    wanted = {"anthropic": "max_tokens", "openai_chat": "length", "gemini": "MAX_TOKENS"}
    assert reason(dialect, got, stream) == wanted.get(dialect, ("incomplete", "max_output_tokens"))
    assert text_of(dialect, got, stream) == TEXT[: len(TEXT) // 2]


REFUSALS = {
    ("F40", "anthropic"): "refusal",
    ("F40", "openai_chat"): "stop",
    ("F40", "openai_responses"): ("completed", None),
    ("F40", "gemini"): "SAFETY",
    ("F40b", "openai_chat"): "content_filter",
    ("F40b", "openai_responses"): ("incomplete", "content_filter"),
    ("F40b", "gemini"): "SAFETY",
    ("F40c", "gemini"): "RECITATION",
    ("F40d", "gemini"): "PROHIBITED_CONTENT",
}


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize(("name", "dialect"), with_dialects("F40", "F40b", "F40c", "F40d"))
def test_f40_refuses(name: str, dialect: str, stream: bool) -> None:
    got = hit(name, dialect, stream)
    assert reason(dialect, got, stream) == REFUSALS[name, dialect]
    assert text_of_unless_refused(dialect, got, stream) == ""
    if name != "F40":
        assert dialect != "gemini" or "promptFeedback" not in final(dialect, got, stream)
        return
    match dialect:
        case "openai_chat" if stream:
            refusal = "".join(d["choices"][0]["delta"].get("refusal") or "" for d in got.datas)
            assert refusal == "I cannot help with that."
        case "openai_chat":
            assert got.json["choices"][0]["message"]["refusal"] == "I cannot help with that."
        case "openai_responses":
            part = {"type": "refusal", "refusal": "I cannot help with that."}
            assert final(dialect, got, stream)["output"][0]["content"] == [part]
            assert not stream or "response.refusal.done" in [event for event, _ in got.events]
        case "gemini":
            assert "candidates" not in final(dialect, got, stream)


def text_of_unless_refused(dialect: str, got: Got, stream: bool) -> str:
    if dialect == "openai_responses" and not stream:
        output = got.json["output"]
        return "".join(part.get("text", "") for item in output for part in item.get("content", []))
    return text_of(dialect, got, stream)


@pytest.mark.parametrize("script", [(TEXT,), (CALLS,)])
@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f41_has_arguments_that_are_no_json(dialect: str, stream: bool, script: Sequence[Any]) -> None:
    got = hit("F41", dialect, stream, script)
    if dialect == "gemini":
        assert reason(dialect, got, stream) == "MALFORMED_FUNCTION_CALL"
        assert calls_of(dialect, got, stream) == []
        return
    args = calls_of(dialect, got, stream)[0][1]
    if dialect == "anthropic":
        assert args == ('{"path": "a", ' if stream else json.dumps('{"path": "a", '))
    else:
        assert args == '{"path":}'


@pytest.mark.parametrize("script", [(TEXT,), (CALLS,)])
@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f42_has_texts_for_objects(dialect: str, stream: bool, script: Sequence[Any]) -> None:
    whole = json.loads(calls_of(dialect, hit("F42", dialect, stream, script), stream)[0][1])
    if dialect != "gemini":
        assert isinstance(whole, str)
        assert isinstance(json.loads(whole), dict)
    nested = json.loads(calls_of(dialect, hit("F42b", dialect, stream, script), stream)[0][1])
    assert json.loads(nested["options"]) == {"policy": "inherit"}
    assert dialect != "gemini" or whole == nested


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f44_calls_tools_that_there_are_not(dialect: str, stream: bool) -> None:
    names = {"F44": "Shell", "F44b": "default_api.read", "F44c": "functions.read", "F44d": ""}
    for name, wanted in names.items():
        assert calls_of(dialect, hit(name, dialect, stream, (CALLS,)), stream)[0][0] == wanted


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f46_is_a_storm_of_200_calls(dialect: str, stream: bool) -> None:
    calls = calls_of(dialect, hit("F46", dialect, stream), stream)
    assert len(calls) == 200
    assert {name for name, _ in calls} == {"read"}


@pytest.mark.parametrize("stream", BOTH)
def test_f48_is_not_finished(stream: bool) -> None:
    assert reason("anthropic", hit("F48", "anthropic", stream), stream) == "pause_turn"
    assert reason("gemini", hit("F48", "gemini", stream), stream) == "OTHER"
    for name, status in (("F48", "queued"), ("F48b", "in_progress")):
        got = hit(name, "openai_responses", stream)
        said = final("openai_responses", got, stream)
        assert (said["status"], said["output"]) == (status, [])
        assert not is_ended("openai_responses", got)


def test_a_paused_turn_of_anthropic_can_be_continued() -> None:
    async def story() -> None:
        async with FakeLLM(["more"], faults=["F48"]) as llm:
            post = good("anthropic")
            content = (await send(llm, post)).json["content"]
            post.body["messages"].append({"role": "assistant", "content": content})
            assert text_of("anthropic", await send(llm, post), False) == "more"
            assert llm.violations == []

    asyncio.run(story())


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f50_has_odd_text_and_f50b_a_long_one(dialect: str, stream: bool) -> None:
    got = hit("F50", dialect, stream)
    assert rb"\ud800" in got.body
    text = text_of(dialect, got, stream)
    for needle in ("\ud800", "\x00", "\u202e", "\u200d"):
        assert needle in text
    assert len(text_of(dialect, hit("F50b", dialect, stream), stream)) == FAST.long_text


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f51_has_the_id_of_an_earlier_reply_and_another_model(dialect: str, stream: bool) -> None:
    async def story() -> list[tuple[str, str]]:
        async with FakeLLM(faults=[None, None, "F51"]) as llm:
            said = [await send(llm, good(dialect, stream=stream)) for _ in range(3)]
            return [identity(got) for got in said]

    def identity(got: Got) -> tuple[str, str]:
        data = got.datas[0] if stream else got.json
        data = data.get("message", data.get("response", data))
        return data.get("id", data.get("responseId")), data.get("model", data.get("modelVersion"))

    first, second, third = asyncio.run(story())
    assert first[0] != second[0]
    assert third == (first[0], "another-model")
    assert first[1] == "m"


@pytest.mark.parametrize("dialect", ALL)
def test_f53_overloads_and_resets_in_turn(dialect: str) -> None:
    async def story() -> list[str]:
        async with FakeLLM(faults=["F53"]) as llm:
            return [
                got.end if not got.raw else str(got.status) for got in [await send(llm, good(dialect)) for _ in "abcd"]
            ]

    busy = "529" if dialect == "anthropic" else "503"
    assert asyncio.run(story()) == [busy, "rst", busy, "rst"]


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"F18", "F20", "F54"}))
def test_each_fault_is_over_when_it_is_over(name: str) -> None:
    """After it the same server answers well, in each dialect, streaming and not; and none of them leaks a request."""

    async def story() -> None:
        async with FakeLLM([TEXT], settings=replace(FAST, long_text=1000, huge_bytes=1000, bomb_bytes=1 << 20)) as llm:
            for dialect in FAULTS[name].dialects:
                for stream in BOTH:
                    post = good(dialect, stream=stream, text=f"{dialect} {stream}", model=f"fault-{name}-then-ok")
                    bad = await send(llm, post)
                    llm._outage_until = 0.0
                    got = await send(llm, post)
                    assert text_of(dialect, got, stream) == TEXT
                    assert FAULTS[name].outcome == "OK" or bad.raw != got.raw
            assert (llm.open, llm.violations) == (0, [])
            await until(lambda: llm.connected == 0)

    asyncio.run(story())


def test_a_fault_does_not_hide_a_request_that_is_wrong() -> None:
    async def story() -> None:
        async with FakeLLM(faults=lambda heard, n: "F19") as llm:
            post: Post = good("anthropic", max_tokens=0)
            assert (await send(llm, post)).status == 400
            assert len(llm.violations) == 1

    asyncio.run(story())
