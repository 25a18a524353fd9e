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
def test_f22_and_f26_come_byte_by_byte_and_are_complete(
    dialect: str, name: str, stream: bool
) -> None:
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
    events = event_parser()
    found = [
        data for at in range(0, len(body), size) for _, data in events.feed(body[at : at + size])
    ]
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
