"""What a receiver answers to an announcement, or does instead of answering."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from retinue import RetinueError
from retinue.channels import webhook
from retinue.channels.webhook import Webhook
from tests.channels.receiver import SECRET, Receiver, hang, hook, status
from tests.contracts.channel import delivery
from tests.contracts.world import run_async
from tests.waiting import SECONDS, until


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299, 409])
@run_async
async def test_2xx_and_409_mean_taken(code: int) -> None:
    async with hook() as (receiver, channel):
        receiver.answer = status(code)
        await channel.send(delivery())
        assert [value["webhook-id"] for value, _ in receiver.requests] == [delivery().key]


@pytest.mark.parametrize(
    "code", [304, 400, 401, 404, 408, 410, 413, 422, 425, 429, 500, 502, 503, 504, 599]
)
@run_async
async def test_any_other_status_raises_and_is_named(code: int) -> None:
    async with hook() as (receiver, channel):
        receiver.answer = status(code)
        with pytest.raises(RetinueError, match=f"{code}"):
            await channel.send(delivery())
        assert len(receiver.requests) == 1, "the outbox tries again, not we"


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@run_async
async def test_a_redirect_is_not_followed(code: int) -> None:
    async with Receiver() as other, hook() as (receiver, channel):
        receiver.answer = status(code, Location=other.url)
        with pytest.raises(RetinueError, match=rf"redirect \({code}\)"):
            await channel.send(delivery())
        assert other.requests == []


@run_async
async def test_a_cookie_is_not_kept() -> None:
    async with hook() as (receiver, channel):
        receiver.answer = status(500, **{"Set-Cookie": "a=b"})
        for _ in range(2):
            with pytest.raises(RetinueError):
                await channel.send(delivery())
        assert "Cookie" not in receiver.requests[1][0]


@pytest.mark.parametrize("code", [200, 500])
@run_async
async def test_nobody_reads_an_endless_body_or_waits_for_a_slow_one(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal n_sent
        response = web.StreamResponse(status=code)
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65_536)
                n_sent += 1
        except ConnectionError:
            return response

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=code, headers={"Content-Length": "10"})
        await response.prepare(request)
        await response.write(b"x")
        return await hang()

    monkeypatch.setattr(webhook, "BODY_SECONDS", 0.2)
    async with hook() as (receiver, channel):
        for answer in (endless, slow):
            receiver.answer = answer
            async with asyncio.timeout(SECONDS):
                try:
                    await channel.send(delivery())
                except RetinueError:
                    assert code == 500
                else:
                    assert code == 200, "the status is the answer"
        receiver.answer = None
        await channel.send(delivery())
        assert receiver.texts == ["It is done."]
        assert len(receiver.peers) == 3, "a connection with a body in it is not used again"
    assert n_sent * 65_536 < 50_000_000


@run_async
async def test_a_packed_body_is_not_unpacked() -> None:
    async def packed(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"not packed at all", headers={"Content-Encoding": "gzip"})

    async with hook() as (receiver, channel):
        receiver.answer = packed
        for _ in range(2):
            await channel.send(delivery())
        assert len(receiver.peers) == 1


@run_async
async def test_a_receiver_that_does_not_answer_is_given_up() -> None:
    async with hook(timeout=0.1) as (receiver, channel):
        receiver.answer = hang
        with pytest.raises(RetinueError, match=r"did not respond within 0\.1 s"):
            await channel.send(delivery())


@asynccontextmanager
async def raw_server(says: bytes, seconds: float = 0.0) -> AsyncIterator[str]:
    """A server that reads the head of a request, says something, and hangs up after a while."""
    served = list[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())  # type: ignore[arg-type]
        await reader.readuntil(b"\r\n\r\n")
        writer.write(says)
        await writer.drain()
        await asyncio.sleep(seconds)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*served)


@run_async
async def test_a_receiver_that_answers_before_it_has_read_is_heard_and_holds_nothing() -> None:
    """Megabytes to a server that looks at the head alone."""
    async with raw_server(
        b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", seconds=0.5
    ) as host:
        channel = Webhook(f"http://{host}/", SECRET, timeout=SECONDS)
        async with asyncio.timeout(SECONDS):
            with pytest.raises(RetinueError, match="413"):
                await channel.send(delivery("x" * 8_000_000))
        # Nobody goes on sending.
        await until(
            lambda: not [task for task in asyncio.all_tasks() if "write_bytes" in repr(task)]
        )
        await channel.close()


@pytest.mark.parametrize(
    "says", [b"", b"HTTP/1.1 2", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n"]
)
@run_async
async def test_a_server_that_does_not_speak_http_raises(says: bytes) -> None:
    async with raw_server(says) as host:
        channel = Webhook(f"http://{host}/token-in-the-path", SECRET)
        with pytest.raises(RetinueError, match=f"{host} failed") as failure:
            await channel.send(delivery())
        await channel.close()
    assert "token" not in str(failure.value)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@run_async
async def test_a_reason_is_short_and_shows_no_secret() -> None:
    port = free_port()
    urls = [
        f"http://user:password@127.0.0.1:{port}/token-in-the-path?token=1#token",
        "http://nobody.invalid/token-in-the-path",
        f"https://127.0.0.1:{port}/token-in-the-path",
        "http://" + "x" * 70 + ".invalid/token-in-the-path",
    ]
    for url in urls:
        channel = Webhook(url, SECRET, headers={"authorization": "Bearer token"}, timeout=5)
        with pytest.raises(RetinueError) as failure:
            await channel.send(delivery())
        await channel.close()
        text = f"{failure.value} {failure.value.__cause__} {channel!r}"
        assert len(str(failure.value)) < 250
        assert not re.search(r"token|password|whsec|MfKQ", text), text
        assert failure.value.__suppress_context__
