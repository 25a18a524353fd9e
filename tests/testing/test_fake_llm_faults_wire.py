"""Faults of the fake provider's connection and framing: silence, cuts, resets, odd and huge
bytes."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from retinue.models.reply_body import event_parser
from retinue.testing.fake_llm.fake_provider import FakeLLM, FakeSettings
from tests.testing.fake_llm_faults_support import BOTH, CALLS, FAST, TEXT, hit, is_ended
from tests.testing.fake_llm_support import ALL, Got, calls_of, connect, good, send, text_of, wire
from tests.waiting import until


@pytest.mark.parametrize("dialect", ALL)
def test_f18_takes_the_request_and_never_answers(dialect: str) -> None:
    reply = hit("F18", dialect, True, first=0.1)
    assert (reply.raw, reply.end) == (b"", "open")
    assert hit("F18", dialect, True, settings=replace(FAST, stall_seconds=0.02)).end == "rst"


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f19_resets_before_any_header(dialect: str, stream: bool) -> None:
    reply = hit("F19", dialect, stream)
    assert (reply.raw, reply.end) == (b"", "rst")


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f20_goes_silent_in_the_middle(dialect: str, stream: bool) -> None:
    reply = hit("F20", dialect, stream, quiet=0.1)
    assert (reply.status, reply.end) == (200, "open")
    assert not reply.is_whole
    if stream:
        assert 0 < len(text_of(dialect, reply, True)) < len(TEXT)
        assert not is_ended(dialect, reply)


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
def test_f22_and_f26_come_byte_by_byte_and_are_complete(
    dialect: str, name: str, stream: bool
) -> None:
    reply = hit(name, dialect, stream)
    assert reply.is_whole
    assert text_of(dialect, reply, stream) == TEXT


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
    reply = hit("F23", dialect, stream)
    assert (reply.status, reply.end, reply.headers["connection"]) == (200, "fin", "close")
    assert not {"content-length", "transfer-encoding"} & set(reply.headers)
    if stream:
        assert not is_ended(dialect, reply)
        assert text_of(dialect, reply, True)
        if dialect == "openai_chat":
            assert reply.datas[-1]["choices"][0]["finish_reason"] == "stop", (
                "only [DONE] is missing"
            )
        if dialect == "anthropic":
            assert reply.events[-1][0] == "message_delta", "only message_stop is missing"
    else:
        with pytest.raises(ValueError, match=r"."):
            _ = reply.json


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f23b_is_complete_as_http_and_not_as_a_reply(dialect: str, stream: bool) -> None:
    reply = hit("F23b", dialect, stream)
    assert reply.is_whole
    if stream:
        assert not is_ended(dialect, reply)
    else:
        with pytest.raises(ValueError, match=r"."):
            _ = reply.json


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f24_cuts_a_chunk_and_f24b_a_length(dialect: str, stream: bool) -> None:
    reply = hit("F24", dialect, stream)
    assert (reply.end, reply.headers["transfer-encoding"], reply.is_whole) == (
        "fin",
        "chunked",
        False,
    )
    size = int(reply.rest.partition(b"\r\n")[0], 16)
    assert 0 < len(reply.rest.partition(b"\r\n")[2]) < size
    reply = hit("F24b", dialect, stream)
    assert (reply.end, reply.is_whole) == ("fin", False)
    assert 0 < len(reply.rest) < int(reply.headers["content-length"])


@pytest.mark.parametrize("script", [(TEXT,), (CALLS,)])
@pytest.mark.parametrize("dialect", ALL)
def test_f25_resets_inside_a_call(dialect: str, script: Sequence[Any]) -> None:
    reply = hit("F25", dialect, True, script)
    assert (reply.status, reply.end) == (200, "rst")
    assert not is_ended(dialect, reply)
    tail = reply.body.decode()
    match dialect:
        case "anthropic":
            assert reply.events[-1][0] == "content_block_start"
            assert reply.datas[-1]["content_block"]["type"] == "tool_use"
        case "openai_responses":
            assert reply.events[-1][0] == "response.function_call_arguments.delta"
        case "openai_chat":
            assert reply.datas[-1]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"]
        case _:
            assert "functionCall" in tail
            assert not tail.endswith("}\r\n\r\n")
    reply = hit("F25", dialect, False, script)
    assert (reply.end, reply.is_whole) == ("rst", False)


@pytest.mark.parametrize("script", [(TEXT,), (CALLS,)])
@pytest.mark.parametrize("dialect", ALL)
def test_f27_is_odd_but_says_the_same(dialect: str, script: Sequence[Any]) -> None:
    reply = hit("F27", dialect, True, script)
    body = reply.body
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
    events = [data for data in whole if b'"future":' not in data]
    assert len(events) == len(plain)
    for odd, even in zip(events, plain, strict=True):
        if even == "[DONE]":
            assert odd == b"[DONE]"
            continue
        value, target = json.loads(odd), json.loads(even)
        assert value.pop("future_field") == {"a": None}
        assert {**value, "sequence_number": 0} == {**target, "sequence_number": 0}
    if dialect in ("anthropic", "openai_responses"):
        assert len(whole) == len(plain) + 1
    if dialect == "openai_responses":
        assert [json.loads(data)["sequence_number"] for data in whole] == list(range(len(whole)))
    assert json.loads(hit("F27", dialect, False, script).body)["future_field"]


def _events(body: bytes, size: int = 1 << 20) -> list[bytes]:
    events = event_parser()
    data_events = [
        data for at in range(0, len(body), size) for _, data in events.feed(body[at : at + size])
    ]
    return data_events + [data for _, data in events.rest()]


def hit_plain(dialect: str, script: Sequence[Any]) -> Got:
    async def story() -> Got:
        async with FakeLLM(script) as llm:
            return await send(llm, good(dialect, stream=True))

    return asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_f28_has_one_event_that_is_no_json_and_then_goes_on_well(dialect: str) -> None:
    reply = hit("F28", dialect, True)
    assert reply.is_whole
    assert is_ended(dialect, reply)
    bad = [n for n, (_, data) in enumerate(reply.events) if data == '{"type":"content_block']
    assert len(bad) == 1
    assert 0 < bad[0] < len(reply.events) - 1
    reply = hit("F28", dialect, False)
    assert reply.is_whole
    with pytest.raises(ValueError, match=r"."):
        _ = reply.json


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f30_is_one_huge_line(dialect: str, stream: bool) -> None:
    reply = hit("F30", dialect, stream)
    assert reply.is_whole
    longest = max(reply.body.split(b"\n"), key=len)
    assert len(longest) > FAST.huge_bytes
    if stream:
        assert longest.startswith(b"data: ")
        json.loads(longest[6:])


def test_f30_is_20_mib_unless_told_otherwise() -> None:
    assert (FakeSettings().huge_bytes, FakeSettings().bomb_bytes, FakeSettings().header_bytes) == (
        20 << 20,
        10 << 30,
        1 << 20,
    )
    assert (FakeSettings().drip_seconds, FakeSettings().outage_seconds, FakeSettings().n_storm) == (
        5.0,
        1800.0,
        200,
    )


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f31_unpacks_to_a_thousand_times_its_size(dialect: str, stream: bool) -> None:
    reply = hit("F31", dialect, stream)
    assert reply.headers["content-encoding"] == "gzip"
    unpacked = zlib.decompressobj(31).decompress(reply.body)
    assert len(unpacked) == FAST.bomb_bytes
    assert len(unpacked) > 300 * len(reply.body)


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
    reply = hit("F31b", dialect, stream)
    assert reply.headers["content-encoding"] == "gzip"
    assert text_of(dialect, reply, stream) == TEXT


@pytest.mark.parametrize("dialect", ALL)
def test_f32_sends_one_delta_twice(dialect: str) -> None:
    reply = hit("F32", dialect, True)
    datas = [data for _, data in reply.events]
    twins = [n for n in range(1, len(datas)) if datas[n] == datas[n - 1]]
    assert len(twins) == 1
    assert len(text_of(dialect, reply, True)) > len(TEXT)
    reply = hit("F32", dialect, True, (CALLS,))
    datas = [data for _, data in reply.events]
    assert sum(datas[n] == datas[n - 1] for n in range(1, len(datas))) == 1
    if dialect in ("anthropic", "openai_chat"):
        with pytest.raises(ValueError, match=r"."):
            json.loads(calls_of(dialect, reply, True)[0][1])
    assert text_of(dialect, hit("F32", dialect, False), False) == TEXT


@pytest.mark.parametrize("name", ["F34", "F34b"])
@pytest.mark.parametrize("dialect", ALL)
def test_f34_has_two_ends(dialect: str, name: str) -> None:
    reply = hit(name, dialect, True)
    ends = {
        "anthropic": b"event: message_stop",
        "openai_chat": b"data: [DONE]",
        "openai_responses": b"event: response.completed",
        "gemini": b"finishReason",
    }
    assert reply.body.count(ends[dialect]) == 2
    assert (b"This came too late." in reply.body) == (name == "F34b")
    if dialect == "openai_responses":
        assert [d["sequence_number"] for d in reply.datas] == list(range(len(reply.datas)))
    assert text_of(dialect, hit(name, dialect, False), False) == TEXT


@pytest.mark.parametrize("dialect", ALL)
def test_f35_leads_elsewhere(dialect: str) -> None:
    answer = hit("F35", dialect, True)
    assert (answer.status, answer.headers["location"]) == (307, "http://evil.test/")
    reply = hit("F35", dialect, False, settings=replace(FAST, elsewhere="http://127.0.0.1:9/"))
    assert reply.headers["location"] == "http://127.0.0.1:9/"


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f36_has_a_giant_header_and_is_good_otherwise(dialect: str, stream: bool) -> None:
    reply = hit("F36", dialect, stream)
    assert len(reply.headers["x-giant"]) == FAST.header_bytes
    assert text_of(dialect, reply, stream) == TEXT
