"""Numbers from outside are bounded before they are parsed, and what this machine lacks is nobody
else's failure."""

from __future__ import annotations

import asyncio
import errno
import json
import resource
import socket
import ssl
import time
from typing import Any

import pytest

from retinue import Agent, Retinue
from retinue.core.spec import Retry
from retinue.core.values import MOST_TOKENS, Usage
from retinue.errors import ModelUnavailable
from retinue.models import machine_limits as machine
from retinue.models.codec import Options, count
from retinue.models.governor import MAX_COOLING, Governor
from retinue.models.http import ConnectionPool
from retinue.models.limit_headers import asked_for, limits_in, until
from retinue.models.new_connections import Dialer
from retinue.models.provider_errors import delay, worded
from tests.models.http_world import (
    CODECS,
    DIALECTS,
    FAST,
    answering,
    asking,
    at_rest,
    complete,
    http_model,
    talking,
)

LONG = 60_000
TEXTS = (
    "9" * LONG,
    "1" * LONG + "s",
    "0." + "1" * LONG,
    "1e" + "9" * LONG,
    " " * LONG,
    "1m" * LONG,
    "Mon, " * LONG,
)


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: t[:6])
def test_a_header_as_long_as_headers_can_be_costs_nothing(text: str) -> None:
    began = time.process_time()
    for name in ("retry-after", "retry-after-ms", "date"):
        asked_for({name: text, "retry-after": text})
    until(text, {"date": text})
    limits_in({f"x-ratelimit-{part}-tokens": text for part in ("limit", "remaining", "reset")})
    limits_in(
        {f"anthropic-ratelimit-tokens-{part}": text for part in ("limit", "remaining", "reset")}
    )
    delay({"retry-after": text}, text, text)
    worded(text, has_key=True)
    # It took minutes; a busy machine takes longer than a millisecond, but not that.
    assert time.process_time() - began < 2.0


def test_what_can_be_meant_is_still_read() -> None:
    assert asked_for({"Retry-After": "7"}) == 7 and asked_for({"retry-after-ms": "1500"}) == 1.5
    assert until("6m0s", {}) == 360 and until("1e999", {}) == 0 and until("nan", {}) == 0
    text = {"retry-after": "Mon, 16 Nov 2026 12:00:30 GMT", "date": "Mon, 16 Nov 2026 12:00:00 GMT"}
    assert asked_for(text) == 30


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_provider_that_asks_for_an_endless_time_is_waited_for_an_hour_at_most(
    dialect: str,
) -> None:
    head = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: %b\r\ncontent-length: 2\r\n\r\n{}" % (
        b"9" * LONG
    )

    async def story() -> None:
        async with answering(head) as (url, _):
            client = ConnectionPool(FAST)
            with pytest.raises(ModelUnavailable) as failure:
                await complete(http_model(url, dialect, client=client))
            await client.close()
            assert failure.value.kind == "rate_limit" and 0 <= failure.value.retry_after <= 3_600

    asyncio.run(story())


@pytest.mark.parametrize(
    "text", [10**30, 10**4000, -5, 1.5e300, "12", None, True, [1], {"a": 1}, MOST_TOKENS]
)
def test_a_count_that_cannot_be_one_is_none(text: Any) -> None:
    assert count(text) == 0
    assert count(12) == 12 and count(12.0) == 12


def usage_body(dialect: str, n: str) -> bytes:
    match dialect:
        case "anthropic":
            body = (
                '{"type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hi"}],'
                '"stop_reason":"end_turn","usage":{"input_tokens":N,"output_tokens":N}}'
            )
        case "openai_chat":
            body = (
                '{"object":"chat.completion","model":"m","choices":[{"index":0,"message":{"content":"hi"},'
                '"finish_reason":"stop"}],"usage":{"prompt_tokens":N,"completion_tokens":N,"total_tokens":N}}'
            )
        case "openai_responses":
            body = (
                '{"status":"completed","model":"m","output":[{"type":"message","content":[{"type":"output_text",'
                '"text":"hi"}]}],"usage":{"input_tokens":N,"output_tokens":N}}'
            )
        case _:
            body = (
                '{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}],'
                '"usageMetadata":{"promptTokenCount":N,"candidatesTokenCount":N}}'
            )
    return body.replace("N", n).encode()


@pytest.mark.parametrize(
    "n", ["9" * 30, "9" * 400, "-7", "1e300", '"12"', "null", "1.5", "true", "[[[]]]"]
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_usage_that_is_no_usage_costs_no_reply_and_no_store(
    dialect: str, n: str, tmp_path: Any
) -> None:
    body = usage_body(dialect, n)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
        body
    )

    async def story() -> Usage:
        async with answering(head + body) as (url, _), Retinue(tmp_path / "r.db") as retinue:
            client = ConnectionPool(FAST)
            model = http_model(url, dialect, client=client, stream=False)
            outcome = await retinue.run(
                Agent("one", model=model), "Go.", retry=Retry(attempts=1, then="fail")
            )
            await client.close()
            assert (outcome.state, outcome.text) == ("completed", "hi"), outcome.error
            return outcome.usage

    used = asyncio.run(story())
    assert 0 <= used.input < MOST_TOKENS and 0 <= used.output < MOST_TOKENS and used.tokens > 0


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("deep", ['{"a":' * 200_000, "[" * 3_000_000, '{"error":' + "[" * 100_000])
def test_json_of_any_depth_is_an_error_of_the_call(dialect: str, deep: str) -> None:
    codec = CODECS[dialect]()
    for status in (400, 500):
        assert codec.failure(status, {}, deep.encode()).kind
    for stream in (True, False):
        decoder = codec.decoder(Options(stream=stream))
        with pytest.raises(ModelUnavailable):
            decoder.feed(f"data: {deep}\n\n".encode() if stream else deep.encode())
            decoder.finish()


# this machine


@pytest.mark.parametrize(
    "number",
    [
        errno.EMFILE,
        errno.EBUSY,
        errno.EINVAL,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.ENETUNREACH,
    ],
)
def test_what_this_machine_lacks_is_told_as_that(number: int) -> None:
    assert errno.errorcode[number] in machine.trouble(OSError(number, "x"))
    try:
        raise RuntimeError("wrapped") from OSError(number, "x")
    except RuntimeError as error:
        assert errno.errorcode[number] in machine.trouble(error)
    assert machine.trouble(MemoryError()) and not machine.trouble(OSError(errno.ECONNREFUSED, "x"))
    assert not machine.trouble(socket.gaierror(socket.EAI_NONAME, "no such name"))


def test_a_name_that_was_not_found_for_lack_of_descriptors_is_this_machines_trouble() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    rest: list[socket.socket] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        with pytest.raises(OSError):
            while True:
                rest.append(socket.socket())
        rest.pop().close()  # one came back meanwhile, which is too few for another look-up
        assert "EMFILE" in machine.trouble(socket.gaierror(socket.EAI_AGAIN, "try again"))
    finally:
        for one in rest:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_descriptors_that_are_back_when_a_look_up_has_failed_do_not_hide_that_they_lacked() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    rest: list[socket.socket] = []

    async def fails(*_: Any, **__: Any) -> Any:
        while rest:
            rest.pop().close()
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    async def story() -> OSError:
        loop = asyncio.get_running_loop()
        loop.getaddrinfo = fails  # type: ignore[method-assign]
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
        try:
            with pytest.raises(OSError):
                while True:
                    rest.append(socket.socket())
            with pytest.raises(OSError) as failure:
                await Dialer(1.0, ssl.create_default_context).resolve("localhost", 1)
        finally:
            while rest:
                rest.pop().close()
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        return failure.value

    assert "EMFILE" in machine.trouble(asyncio.run(story()))


@pytest.mark.parametrize("named", [False, True])
def test_without_descriptors_a_run_waits_a_moment_and_the_provider_is_not_blamed(
    named: bool,
) -> None:
    async def story() -> None:
        async with talking(["Hello."]) as (llm, model), Retinue() as retinue:
            if named:
                model.connect(llm.url.replace("127.0.0.1", "localhost"), "k")
            machine.DESCRIPTORS.raise_limit()  # a first call does so, once in a process
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            rest: list[socket.socket] = []
            loop = asyncio.get_running_loop()
            for codec in ("ascii", "idna", "latin-1", "utf-8"):
                "localhost".encode(codec)  # a codec is a module, which is a file
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
            try:
                for _ in range(8):
                    with pytest.raises(OSError):  # what came back meanwhile is taken again
                        while True:
                            rest.append(socket.socket())
                    with pytest.raises(ModelUnavailable) as failure:
                        await complete(model, asking())
                    # Without descriptors, libc answers a look-up of a name with either number.
                    numbers = ("EMFILE", "EBUSY", "EINVAL") if named else ("EMFILE",)
                    assert failure.value.kind == "machine", failure.value
                    assert any(number in str(failure.value) for number in numbers), failure.value
                assert (model.governor.failures, model.governor.is_broken) == (
                    0,
                    False,
                ) and at_rest(model.governor)
                run = loop.create_task(
                    retinue.run(Agent("one", model=model), "Go.", retry=Retry(base_ms=20))
                )
                await asyncio.sleep(0.05)
            finally:
                for one in rest:
                    one.close()
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            assert (await run).text == "Hello."

    asyncio.run(story())


def test_numbers_in_an_error_inside_a_stream_are_bounded_too() -> None:
    requests = json.dumps({"error": {"code": 10**300, "message": "x", "status": "Y" * 100_000}})
    decoder = CODECS["gemini"]().decoder(Options())
    with pytest.raises(ModelUnavailable) as failure:
        decoder.feed(f"data: {requests}\n\n".encode())
    assert len(str(failure.value)) < 1_000


@pytest.mark.parametrize(
    ("limit", "rest", "reset"),
    [
        ("1", "0", "1e9"),
        ("1e-300", "0", "1"),
        ("0.001", "0", "9999999d"),
        ("5", "-3", "2999-01-01T00:00:00Z"),
    ],
)
def test_no_header_stops_an_account_for_longer_than_an_hour(
    limit: str, rest: str, reset: str
) -> None:
    """Twenty are under way when one answer says that nothing is left for ages."""
    now = [0.0]
    headers = {
        "x-ratelimit-limit-requests": limit,
        "x-ratelimit-remaining-requests": rest,
        "x-ratelimit-reset-requests": reset,
    }

    async def main() -> None:
        governor = Governor(seconds=lambda: now[0], ramp_seconds=0)
        turns = [governor.turn("tree") for _ in range(20)]
        for turn in turns:
            await turn.__aenter__()
        turns[0].answered(200, headers)
        for turn in turns:
            await turn.__aexit__(None, None, None)
        for _ in range(3):
            wait = governor._wait(governor.turn("tree"), now[0])
            assert wait is not None and wait <= MAX_COOLING
            now[0] += MAX_COOLING + 1
            async with governor.turn("tree"):
                pass
        assert governor.in_flight == 0

    asyncio.run(asyncio.wait_for(main(), 30))
