"""The fake provider as a server: streams, faults by name, connections, numbers, and the program."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from retinue.core.messages import AssistantMessage, ToolCall
from retinue.errors import ConfigError
from retinue.testing.fake_llm import fake_provider as fake_llm
from retinue.testing.fake_llm.fake_program import main
from retinue.testing.fake_llm.fake_provider import FAULTS, FakeLLM, FakeSettings
from tests.testing.fake_llm_support import ALL, connect, good, raw, send, text_of, tools, wire
from tests.waiting import until

BOTH = [False, True]


def test_gemini_streams_an_array_when_events_are_not_asked_for() -> None:
    async def story() -> None:
        async with FakeLLM(["one two three"]) as llm:
            post = good("gemini", stream=True)
            post.path = post.target().partition("?")[0]
            reply = await send(llm, post)
            assert reply.headers["content-type"] == "application/json"
            parts = [
                c["content"]["parts"][0]["text"]
                for chunk in reply.json
                for c in chunk["candidates"]
            ]
            assert "".join(parts) == "one two three"
            post.headers["x-fault"] = "F3"
            assert (await send(llm, post)).json[0]["error"]["status"] == "UNAVAILABLE"

    asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_a_stream_may_be_slow(dialect: str) -> None:
    async def story() -> None:
        async with FakeLLM(
            ["one two three"], chunks=4, settings=FakeSettings(pace_seconds=0.01)
        ) as llm:
            began = asyncio.get_running_loop().time()
            assert (
                text_of(dialect, await send(llm, good(dialect, stream=True)), True)
                == "one two three"
            )
            assert asyncio.get_running_loop().time() - began >= 0.02
            assert text_of(dialect, await send(llm, good(dialect)), False) == "one two three"

    asyncio.run(story())


def test_chat_counts_the_tokens_of_a_stream_only_when_it_is_asked_to() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            plain = await send(llm, good("openai_chat", stream=True))
            assert not any("usage" in data for data in plain.datas)
            reply = await send(
                llm, good("openai_chat", stream=True, stream_options={"include_usage": True})
            )
            assert [data["usage"] is None for data in reply.datas] == [True] * (
                len(reply.datas) - 1
            ) + [False]
            assert reply.datas[-1]["choices"] == []

    asyncio.run(story())


@pytest.mark.parametrize("how", ["header", "model", "list", "function", "script"])
@pytest.mark.parametrize("dialect", ALL)
def test_a_fault_can_be_asked_for_in_five_ways(dialect: str, how: str) -> None:
    async def story() -> None:
        faults = {
            "list": [None, "F6"],
            "function": lambda request, n: "F6" if n == 2 else None,
        }.get(how, ())
        script = (
            (lambda request: "F6" if request.n == 2 else "good") if how == "script" else ["good"]
        )
        async with FakeLLM(script, faults=faults) as llm:
            statuses = []
            for n in (1, 2, 3):
                post = good(dialect, model="fault-F6" if how == "model" and n == 2 else "m")
                if how == "header" and n == 2:
                    post.headers["x-fault"] = "F6"
                statuses.append((await send(llm, post)).status)
            assert statuses == [200, 500, 200]
            assert llm.injected == [(2, "F6")]
            assert llm.violations == []

    asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_then_ok_means_that_each_turn_fails_once(dialect: str) -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            statuses = []
            for turns in (0, 0, 0, 1, 1):
                statuses.append(
                    (await send(llm, good(dialect, model="fault-F6-then-ok", turns=turns))).status
                )
            assert statuses == [500, 200, 200, 500, 200]
            post = good(dialect, text="other")
            post.headers["x-fault"] = "F9-then-ok"
            assert [(await send(llm, post)).status for _ in (1, 2)] == [504, 200]

    asyncio.run(story())


def test_what_failed_once_is_forgotten_some_day() -> None:
    async def story() -> None:
        async with FakeLLM(settings=FakeSettings(n_prefixes=2)) as llm:
            statuses = []
            for text in ("a", "b", "c", "c", "a"):
                statuses.append(
                    (await send(llm, good("gemini", model="fault-F6-then-ok", text=text))).status
                )
            assert statuses == [500, 500, 500, 200, 500]

    asyncio.run(story())


def test_a_fault_that_there_is_not_is_refused() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            post = good("openai_chat", model="fault-F2c")
            assert (await send(llm, post)).status == 400
            for name in ("F99", "nonsense"):
                post.headers["x-fault"] = name
                assert (await send(llm, post)).status == 400
            assert [v.message for v in llm.violations] == [
                f"Unknown fault {name} for openai_chat." for name in ("F2c", "F99", "nonsense")
            ]

    asyncio.run(story())


def test_seconds_pass_before_each_answer_and_requests_are_answered_at_once() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with FakeLLM(seconds=0.5) as llm:
            began = loop.time()
            waiting = [asyncio.create_task(send(llm, good(dialect))) for dialect in ALL * 5]
            assert {(await one).status for one in waiting} == {200}
            assert 0.5 <= loop.time() - began < 20 * 0.5, (
                "one after the other would have taken longer"
            )
            assert (llm.open, llm.disconnects, llm.connections) == (0, 0, 20)

    asyncio.run(story())


@pytest.mark.parametrize("stream", BOTH)
def test_a_client_that_goes_away_is_counted_and_its_work_is_dropped(stream: bool) -> None:
    async def story() -> None:
        settings = FakeSettings(pace_seconds=5.0) if stream else FakeSettings()
        async with FakeLLM(seconds=0.0 if stream else 5.0, settings=settings) as llm:
            reader, writer = await connect(llm)
            writer.write(wire(good("anthropic", stream=stream)))
            await until(lambda: llm.open == 1)
            if stream:
                assert await reader.readuntil(b"message_start")
            writer.transport.abort()
            await until(lambda: llm.open == 0)
            assert (llm.open, llm.disconnects, llm.connected) == (0, 1, 0)

    asyncio.run(story())


def test_a_server_that_stops_cuts_everybody_off_and_counts_nobody() -> None:
    async def story() -> None:
        llm = FakeLLM(seconds=60)
        await llm.start()
        task = asyncio.create_task(send(llm, good("anthropic")))
        await until(lambda: llm.open == 1)
        await asyncio.wait_for(llm.stop(), 2)
        await llm.stop()
        assert (await task).raw == b""
        assert (llm.open, llm.disconnects, llm.connected) == (0, 0, 0)

    asyncio.run(story())


def test_a_connection_is_used_again_and_requests_may_be_sent_ahead() -> None:
    async def story() -> None:
        async with FakeLLM(lambda request: request.messages[-1].text, seconds=0.01) as llm:
            reader, writer = await connect(llm)
            writer.write(
                b"".join(wire(good("anthropic", text=text)) for text in ("one", "two", "three"))
            )
            texts = []
            for _ in range(3):
                head = await reader.readuntil(b"\r\n\r\n")
                n_bytes = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                texts.append(json.loads(await reader.readexactly(n_bytes))["content"][0]["text"])
            assert texts == ["one", "two", "three"]
            writer.close()
            assert llm.connections == 1

    asyncio.run(story())


def test_two_user_agent_headers_and_chunked_and_announced_bodies_are_taken() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            body = good("gemini").data()
            start = "POST /v1beta/models/m:generateContent HTTP/1.1\r\n"
            start += "content-type: application/json\r\nx-goog-api-key: k\r\n"
            twice = (
                f"{start}user-agent: a\r\nuser-agent: b\r\nconnection: "
                f"close\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            assert (await raw(llm, twice.encode() + body)).status == 200
            assert llm.requests[0].headers["user-agent"] == "a, b"
            chunked = f"{start}connection: close\r\ntransfer-encoding: chunked\r\n\r\n".encode()
            half = len(body) // 2
            for part in (body[:half], body[half:], b""):
                chunked += b"%x\r\n%b\r\n" % (len(part), part)
            assert (await raw(llm, chunked)).status == 200
            reader, writer = await connect(llm)
            announced = (
                f"{start}expect: 100-continue\r\nconnection: close\r\ncontent-length: "
                f"{len(body)}\r\n\r\n"
            )
            writer.write(announced.encode())
            assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
            writer.write(body)
            assert b"200 OK" in await reader.read()
            writer.close()

    asyncio.run(story())


def test_what_is_no_http_is_cut_off() -> None:
    async def story() -> None:
        async with FakeLLM(settings=FakeSettings(max_body=1000)) as llm:
            assert (await raw(llm, b"hello\r\n\r\n")).end == "rst"
            bad = b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
            assert (await raw(llm, bad)).end == "rst"
            assert (await raw(llm, b"GET / HTTP/1.1\r\nx: " + b"x" * (1 << 20))).end == "rst"
            endless = (
                b"POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
                + b"fff\r\n"
                + b"x" * 4095
            )
            assert (await raw(llm, endless)).status == 413

    asyncio.run(story())


def test_only_the_last_requests_are_kept() -> None:
    async def story() -> None:
        async with FakeLLM(settings=FakeSettings(keep=3)) as llm:
            for n in range(20):
                await send(llm, good("anthropic", text=f"{n}"))
            assert llm.n_requests == 20
            assert 3 <= len(llm.requests) <= 6
            assert llm.requests[-1].messages[0].text == "19"

    asyncio.run(story())


def test_the_numbers_can_be_asked_for_from_outside() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            await send(llm, good("anthropic", max_tokens=0))
            reply = await raw(llm, b"GET /stats HTTP/1.1\r\nconnection: close\r\n\r\n")
            assert reply.json["requests"] == 1
            assert reply.json["violations"] == [
                "max_tokens: Input should be greater than or equal to 1"
            ]

    asyncio.run(story())


def test_each_fault_has_a_line_about_it_and_an_outcome() -> None:
    numbers = {int("".join(c for c in name if c.isdigit())) for name in FAULTS}
    spans = [
        (1, 7),
        (9, 16),
        (18, 20),
        (22, 28),
        (30, 32),
        (34, 36),
        (38, 42),
        (44, 44),
        (46, 46),
        (48, 48),
    ]
    left_out = {17, 21, 29, 33, 37, 43, 45, 47, 49, 52, 8}
    positions = {n for low, high in spans for n in range(low, high + 1)} | {50, 51, 53, 54}
    assert numbers == positions - left_out
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert fault.about
        assert fault.outcome in ("R", "P", "T", "M", "S", "OK")
        assert set(fault.dialects) <= set(ALL)
    assert [FAULTS["F32"].outcome_in(dialect) for dialect in ("anthropic", "openai_responses")] == [
        "M",
        "OK",
    ]


def test_an_outage_fails_everybody_until_it_is_over() -> None:
    async def story() -> None:
        async with FakeLLM(settings=FakeSettings(outage_seconds=600)) as llm:
            post = good("anthropic")
            assert (await send(llm, post)).status == 200
            bad = good("anthropic")
            bad.headers["x-fault"] = "F53"
            assert (await send(llm, bad)).end == "rst"
            assert (await send(llm, post)).status == 529
            assert (await send(llm, good("gemini"))).end == "rst"
            llm._outage_until = asyncio.get_running_loop().time()
            assert (await send(llm, bad)).status == 200

    asyncio.run(story())


def test_flapping_fails_half_of_the_requests_and_the_same_ones_each_time() -> None:
    async def once(seed: int) -> list[tuple[int, str]]:
        async with FakeLLM(
            faults=lambda request, n: "F54", settings=FakeSettings(seed=seed, settle_seconds=0.0)
        ) as llm:
            for n in range(60):
                await send(llm, good("openai_chat", stream=True, text=f"{n}"))
            return llm.injected

    first, second, other = (asyncio.run(once(seed)) for seed in (1, 1, 2))
    assert first == second
    assert first != other
    assert 15 <= len(first) <= 45
    assert len(Counter(name for _, name in first)) > 6


def test_a_script_may_say_that_the_provider_flaps_or_is_out() -> None:
    async def story() -> None:
        async with FakeLLM(lambda request: "F54", settings=FakeSettings(settle_seconds=0.0)) as llm:
            for n in range(30):
                await send(llm, good("openai_chat", text=f"{n}"))
            assert 5 < len(llm.injected) < 25
        async with FakeLLM(["F53"]) as llm:
            assert [(await send(llm, good("anthropic"))).end for _ in "ab"] == ["fin", "rst"]
            llm._outage_until = 0.0
            assert (await send(llm, good("anthropic"))).status == 200

    asyncio.run(story())


def test_a_script_can_be_a_file_of_json_lines(tmp_path: Path) -> None:
    from retinue.testing.fake_llm.script import load

    path = tmp_path / "script.jsonl"
    path.write_text(
        '"Hello."\n\n{"fault": "F4"}\n{"text": "Wait.", "calls": [{"name": "read", "args": '
        '{"path": "a"}}]}\n'
    )
    wait = AssistantMessage(
        text="Wait.", calls=(ToolCall(id="", name="read", arguments_json='{"path":"a"}'),)
    )
    assert load(path) == ["Hello.", "F4", wait]
    for bad in ("", "17\n", '{"calls": [{}]}\n', "{\n"):
        path.write_text(bad)
        with pytest.raises(ConfigError, match=r"script\.jsonl"):
            load(path)


def test_the_program_prints_its_address_and_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('"From a file."\n')
    command = [
        sys.executable,
        "-m",
        "retinue.testing.fake_llm",
        "--script",
        str(script),
        "--latency",
        "1",
    ]
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            url = process.stdout.readline().decode().strip()
            post = good("anthropic")
            headers = {"content-type": "application/json", **post.headers}
            request = urllib.request.Request(f"{url}/v1/messages", post.data(), headers)
            with urllib.request.urlopen(request, timeout=120) as answer:
                assert json.load(answer)["content"][0]["text"] == "From a file."
            process.send_signal(number)
            assert process.wait(120) == 0
            assert process.stderr.read() == b""


def test_the_program_says_what_is_wrong_with_its_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--script", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_a_short_request_costs_little() -> None:
    """A guard against a blunder, not a measurement: the machine may be busy."""
    import time

    async def story() -> float:
        async with FakeLLM() as llm:
            data = wire(good("anthropic", turns=2))
            reader, writer = await connect(llm)
            best = 1.0
            for _ in range(20):
                began = time.process_time()
                for _ in range(20):
                    writer.write(data)
                    head = await reader.readuntil(b"\r\n\r\n")
                    await reader.readexactly(
                        int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                    )
                best = min(best, (time.process_time() - began) / 20)
            writer.close()
            return best

    assert asyncio.run(story()) < 0.002, "client and server together"


def test_the_fake_needs_no_web_framework() -> None:
    sources = sorted(Path(fake_llm.__file__).parent.glob("*.py"))
    assert len(sources) > 10
    assert [path.name for path in sources if "aiohttp" in path.read_text()] == []


def test_a_tool_list_is_read_once() -> None:
    from retinue.testing.fake_llm.strict_checks import Memory

    records: list[object] = []

    def read(value: object) -> tuple[()]:
        records.append(value)
        return ()

    memory = Memory(size=2)
    for name in ("a", "b", "a", "c", "a"):
        memory.tools(tools("anthropic", name), read)
    assert len(records) == 4
