"""Announcements over HTTP, to a real server on loopback; and how a receiver tells ours from others."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from retinue import ConfigError, RetinueError
from retinue.channels import webhook
from retinue.channels.webhook import Webhook, sign, verify
from tests.channels.receiver import SECRET, Receiver, hang, status
from tests.contracts.channel import ChannelContract, Side, delivery
from tests.contracts.world import START, run_async

KEY = base64.b64decode(SECRET.removeprefix("whsec_"))


class HookSide:
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.channel = Webhook(receiver.url, SECRET)

    def taken(self) -> list[str]:
        return self.receiver.texts

    def break_down(self) -> None:
        self.receiver.answer = status(503)

    def mend(self) -> None:
        self.receiver.answer = None


class TestWebhook(ChannelContract):
    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Side]:
        async with Receiver() as receiver:
            side = HookSide(receiver)
            yield side
            await side.channel.close()


@asynccontextmanager
async def hook(secret: Any = SECRET, **options: Any) -> AsyncIterator[tuple[Receiver, Webhook]]:
    async with Receiver() as receiver:
        channel = Webhook(receiver.url, secret, **options)
        yield receiver, channel
        await channel.close()


# what is sent


@run_async
async def test_a_request_says_what_happened_and_is_signed() -> None:
    async with hook(headers={"Authorization": "Bearer x", "X-Team": "a"}) as (receiver, channel):
        await channel.send(delivery("It is done.", key="k7", run="r7", root="r0"))
    ((headers, body),) = receiver.requests
    assert body == (
        b'{"type":"announcement","timestamp":"2025-11-13T02:13:20.000Z",'
        b'"data":{"run":"r7","root":"r0","user":"ada","thread":"42","text":"It is done."}}'
    )
    given = {name.lower(): value for name, value in headers.items()}
    assert given["webhook-id"] == given["idempotency-key"] == "k7"
    assert abs(int(given["webhook-timestamp"]) - time.time()) < 10
    assert given["webhook-signature"] == sign(KEY, "k7", given["webhook-timestamp"], body)
    assert (given["content-type"], given["content-length"]) == ("application/json", str(len(body)))
    assert (given["authorization"], given["x-team"], given["user-agent"]) == ("Bearer x", "a", "retinue")
    assert not {"transfer-encoding", "cookie", "expect"} & set(given)


@run_async
async def test_a_repetition_of_one_try_is_the_same_byte_for_byte() -> None:
    async with hook() as (receiver, channel):
        for _ in range(2):
            await channel.send(delivery("It is done.", next_at=START + 1))
    (_, first), (_, second) = receiver.requests
    assert first == second
    assert b"2025-11-13T02:13:20.001Z" in first


@run_async
async def test_each_secret_signs_so_that_a_receiver_can_change_from_one_to_the_next() -> None:
    async with hook(secret=["the new secret", b"\x00raw\xff", SECRET]) as (receiver, channel):
        await channel.send(delivery(key="k"))
        ((headers, body),) = receiver.requests
    assert len(headers["webhook-signature"].split(" ")) == 3
    for secret in ("the new secret", b"\x00raw\xff", SECRET, ["another", SECRET]):
        assert verify(secret, headers, body) == "k"
    for wrong in ("another", SECRET.removeprefix("whsec_"), ["another", "and another"]):
        with pytest.raises(RetinueError, match="not signed with this secret"):
            verify(wrong, headers, body)


@run_async
async def test_one_connection_serves_many_requests() -> None:
    async with hook() as (receiver, channel):
        for n in range(5):
            for _ in ("taken", "taken before"):
                await channel.send(delivery(f"text {n}"))
        receiver.answer = status(500)
        with pytest.raises(RetinueError):
            await channel.send(delivery("x"))
        assert (len(receiver.requests), len(receiver.peers)) == (11, 1)


@run_async
async def test_a_channel_that_was_closed_can_be_used_again() -> None:
    async with hook() as (receiver, channel):
        await channel.close()
        await channel.send(delivery("first"))
        await channel.close()
        await channel.close()
        await channel.send(delivery("second"))
        assert receiver.texts == ["first", "second"]
        assert len(receiver.peers) == 2


@run_async
async def test_a_request_that_is_under_way_when_the_channel_is_closed_fails() -> None:
    async with hook() as (receiver, channel):
        receiver.answer = hang
        sending = asyncio.create_task(channel.send(delivery()))
        while not receiver.requests:
            await asyncio.wait([sending], timeout=0.01)
        await channel.close()
        with pytest.raises(RetinueError, match="could not be asked"):
            await sending


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_channel_outlives_its_loop_closed_or_not() -> None:
    channel = Webhook("http://127.0.0.1:1/", SECRET)

    async def main(*, close: bool) -> None:
        async with Receiver() as receiver:
            channel._url = receiver.url
            await channel.send(delivery("x"))
            assert receiver.texts == ["x"]
            if close:
                await channel.close()

    for close in (True, False, False):
        asyncio.run(main(close=close))
    asyncio.run(channel.close())
    gc.collect()


@run_async
async def test_a_key_that_cannot_stand_in_a_header_is_refused_before_it_is_sent() -> None:
    async with hook() as (receiver, channel):
        for key in ("a.b", "a b", "a\r\nx: y", "ä", "x" * 300):
            with pytest.raises(RetinueError, match="was not sent"):
                await channel.send(delivery(key=key))
        assert receiver.requests == []


# what is answered


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299, 409])
@run_async
async def test_2xx_and_409_mean_taken(code: int) -> None:
    async with hook() as (receiver, channel):
        receiver.answer = status(code)
        await channel.send(delivery())
        assert [given["webhook-id"] for given, _ in receiver.requests] == [delivery().key]


@pytest.mark.parametrize("code", [304, 400, 401, 404, 408, 410, 413, 422, 425, 429, 500, 502, 503, 504, 599])
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
async def test_nobody_reads_an_endless_body_or_waits_for_a_slow_one(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
            async with asyncio.timeout(5):
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
    async with hook(timeout_seconds=0.1) as (receiver, channel):
        receiver.answer = hang
        with pytest.raises(RetinueError, match=r"did not answer within 0\.1 s"):
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
    async with raw_server(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", seconds=0.5) as host:
        channel = Webhook(f"http://{host}/", SECRET, timeout_seconds=5)
        async with asyncio.timeout(3):
            with pytest.raises(RetinueError, match="413"):
                await channel.send(delivery("x" * 8_000_000))
        await asyncio.sleep(0.1)
        assert not [task for task in asyncio.all_tasks() if "write_bytes" in repr(task)], "nobody goes on sending"
        await channel.close()


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 2", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n"])
@run_async
async def test_a_server_that_does_not_speak_http_raises(says: bytes) -> None:
    async with raw_server(says) as host:
        channel = Webhook(f"http://{host}/token-in-the-path", SECRET)
        with pytest.raises(RetinueError, match=f"{host} could not be asked") as caught:
            await channel.send(delivery())
        await channel.close()
    assert "token" not in str(caught.value)


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
        channel = Webhook(url, SECRET, headers={"authorization": "Bearer token"}, timeout_seconds=5)
        with pytest.raises(RetinueError) as caught:
            await channel.send(delivery())
        await channel.close()
        said = f"{caught.value} {caught.value.__cause__} {channel!r}"
        assert len(str(caught.value)) < 250
        assert not re.search(r"token|password|whsec|MfKQ", said), said
        assert caught.value.__suppress_context__


# how a request is checked


def signed(body: bytes = b"{}", id: str = "k", at: float | None = None) -> dict[str, str]:
    when = str(int(time.time() if at is None else at))
    return {"Webhook-Id": id, "Webhook-Timestamp": when, "WEBHOOK-SIGNATURE": sign(KEY, id, when, body)}


def test_the_signature_is_that_of_the_standard() -> None:
    """The example by which the libraries of Standard Webhooks test themselves."""
    assert (
        sign(KEY, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize("secret", [SECRET, "a plain secret"])
@run_async
async def test_another_implementation_accepts_what_we_sign(secret: str) -> None:
    from openai import InvalidWebhookSignatureError, OpenAI

    async with hook(secret=["an older secret", secret]) as (receiver, channel):
        receiver.secret = secret
        await channel.send(delivery("naïve 漢字 \U0001f389"))
        ((headers, body),) = receiver.requests
    with OpenAI(api_key="none") as client:
        client.webhooks.verify_signature(body, headers, secret=secret)
        with pytest.raises(InvalidWebhookSignatureError):
            client.webhooks.verify_signature(body + b" ", headers, secret=secret)


def test_a_good_request_gives_its_key() -> None:
    assert verify(SECRET, signed(), b"{}") == "k"
    assert verify(SECRET, signed(at=time.time() - 290), b"{}") == "k"
    assert verify(SECRET, signed(at=time.time() - 3_000), b"{}", tolerance_seconds=3_600) == "k"
    several = signed() | {"WEBHOOK-SIGNATURE": f"v1a,x v2,y v1,AAAA {signed()['WEBHOOK-SIGNATURE']} v1,BBBB"}
    assert verify(SECRET, several, b"{}") == "k"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"Webhook-Id": "other"}, "not signed"),
        ({"Webhook-Id": ""}, "no webhook-id"),
        ({"Webhook-Id": "k.1"}, "no webhook-id"),
        ({"Webhook-Id": "k\n"}, "no webhook-id"),
        ({"Webhook-Timestamp": "1"}, "not signed"),
        ({"Webhook-Timestamp": ""}, "webhook-timestamp"),
        ({"Webhook-Timestamp": "now"}, "webhook-timestamp"),
        ({"Webhook-Timestamp": "-1"}, "webhook-timestamp"),
        ({"Webhook-Timestamp": "1e9"}, "webhook-timestamp"),
        ({"Webhook-Timestamp": "١٢"}, "webhook-timestamp"),
        ({"Webhook-Timestamp": "9" * 5_000}, "webhook-timestamp"),
        ({"WEBHOOK-SIGNATURE": ""}, "not signed"),
        ({"WEBHOOK-SIGNATURE": "v1,"}, "not signed"),
        ({"WEBHOOK-SIGNATURE": "v1,ä\ud800\udc80"}, "not signed"),
        ({"WEBHOOK-SIGNATURE": sign(b"another", "k", str(int(time.time())), b"{}")}, "not signed"),
    ],
)
def test_a_request_that_was_changed_is_refused(changed: dict[str, str], why: str) -> None:
    with pytest.raises(RetinueError, match=why):
        verify(SECRET, signed() | changed, b"{}")


def test_a_request_without_headers_with_another_version_or_body_is_refused() -> None:
    good = signed()
    for name in good:
        with pytest.raises(RetinueError):
            verify(SECRET, {n: v for n, v in good.items() if n != name}, b"{}")
    for signature in (good["WEBHOOK-SIGNATURE"].replace("v1,", "v2,"), good["WEBHOOK-SIGNATURE"][:-4]):
        with pytest.raises(RetinueError):
            verify(SECRET, good | {"WEBHOOK-SIGNATURE": signature}, b"{}")
    with pytest.raises(RetinueError):
        verify(SECRET, good, b"{ }")


@pytest.mark.parametrize("seconds", [-10_000, -310, 310, 10_000])
def test_a_request_of_another_time_is_refused(seconds: float) -> None:
    with pytest.raises(RetinueError, match="within"):
        verify(SECRET, signed(at=time.time() + seconds), b"{}")


# what a caller does wrong


@pytest.mark.parametrize(
    "secret", ["", b"", [], ["good", ""], "whsec_", "whsec_%%%", "whsec_abc", "whsec_abcd%", "whsk_abcd", "whpk_abcd"]
)
def test_a_secret_that_cannot_be_used_is_refused_and_not_shown(secret: Any) -> None:
    for use in (lambda: Webhook("https://example.org/", secret), lambda: verify(secret, signed(), b"{}")):
        with pytest.raises(ConfigError, match="webhook") as caught:
            use()
        assert "abc" not in str(caught.value) and "%" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "example.org/token", "ftp://example.org/token", "https:///token", "http://x:token/", "http://[token/"]
)
def test_a_url_that_cannot_be_used_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="URL") as caught:
        Webhook(url, SECRET)
    assert "token" not in str(caught.value)


@pytest.mark.parametrize(
    "headers",
    [
        {"Webhook-Id": "x"},
        {"webhook-signature": "x"},
        {"Idempotency-Key": "x"},
        {"Content-Type": "text/plain"},
        {"X-A": "secret\r\nX-B: c"},
        {"X A": "secret"},
        {"": "secret"},
        {"X-A": "secret ä"},
    ],
)
def test_headers_that_are_ours_or_cannot_be_sent_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="header") as caught:
        Webhook("https://example.org/", SECRET, headers=headers)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="timeout_seconds"):
        Webhook("https://example.org/", SECRET, timeout_seconds=seconds)


def test_without_aiohttp_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ConfigError, match=re.escape("pip install retinue[http]")):
        Webhook("https://example.org/", SECRET)
    assert verify(SECRET, signed(), b"{}") == "k", "a receiver needs no client"


def test_importing_the_channels_does_not_import_aiohttp() -> None:
    program = (
        "import sys, retinue.channels.webhook, retinue.channels.console, retinue.channels.file; "
        "sys.exit('aiohttp' in sys.modules)"
    )
    path = str(Path(__file__).resolve().parents[2] / "src")
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, timeout=30)
    assert done.returncode == 0


@run_async
async def test_the_example_receiver_of_the_tests_takes_no_forged_request() -> None:
    async with Receiver() as receiver:
        forger = Webhook(receiver.url, "another secret")
        with pytest.raises(RetinueError, match="401"):
            await forger.send(delivery())
        await forger.close()
        assert receiver.taken == {}
        assert msgspec.json.decode(receiver.requests[0][1])["type"] == "announcement"
