"""Announcements over HTTP, to a real server on loopback: what is sent, and what a caller does
wrong."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import ConfigError, RetinueError
from retinue.channels.webhook import Webhook
from retinue.channels.webhook_signature import sign, verify_webhook
from tests.channels.receiver import KEY, SECRET, Receiver, hang, hook, signed, status
from tests.contracts.channel import ChannelContract, Side, delivery
from tests.contracts.world import START, run_async
from tests.waiting import SECONDS


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
            yield side  # type: ignore[misc]
            await side.channel.close()


@run_async
async def test_what_the_runtime_says_is_a_field_of_its_own() -> None:
    async with hook() as (receiver, channel):
        await channel.send(delivery("It is done.", note="one is missing"))
    ((_, body),) = receiver.requests
    assert body.endswith(b'"text":"It is done.","note":"one is missing"}}')


@run_async
async def test_a_request_says_what_happened_and_is_signed() -> None:
    async with hook(headers={"Authorization": "Bearer x", "X-Team": "a"}) as (receiver, channel):
        await channel.send(delivery("It is done.", key="k7", run="r7", root="r0"))
    ((headers, body),) = receiver.requests
    assert body == (
        b'{"type":"announcement","timestamp":"2025-11-13T02:13:20.000Z",'
        b'"data":{"run":"r7","root":"r0","user":"ada","thread":"42","text":"It is done."}}'
    )
    values = {name.lower(): value for name, value in headers.items()}
    assert values["webhook-id"] == values["idempotency-key"] == "k7"
    assert abs(int(values["webhook-timestamp"]) - time.time()) < 120
    assert values["webhook-signature"] == sign(KEY, "k7", values["webhook-timestamp"], body)
    assert (values["content-type"], values["content-length"]) == (
        "application/json",
        str(len(body)),
    )
    assert (values["authorization"], values["x-team"], values["user-agent"]) == (
        "Bearer x",
        "a",
        "retinue",
    )
    assert not {"transfer-encoding", "cookie", "expect"} & set(values)


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
        assert verify_webhook(secret, headers, body) == "k"
    for wrong in ("another", SECRET.removeprefix("whsec_"), ["another", "and another"]):
        with pytest.raises(RetinueError, match="not signed with this secret"):
            verify_webhook(wrong, headers, body)


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
        with pytest.raises(RetinueError, match="failed"):
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


@pytest.mark.parametrize(
    "secret",
    [
        "",
        b"",
        [],
        ["good", ""],
        "whsec_",
        "whsec_%%%",
        "whsec_abc",
        "whsec_abcd%",
        "whsk_abcd",
        "whpk_abcd",
    ],
)
def test_a_secret_that_cannot_be_used_is_refused_and_not_shown(secret: Any) -> None:
    for use in (
        lambda: Webhook("https://example.org/", secret),
        lambda: verify_webhook(secret, signed(), b"{}"),
    ):
        with pytest.raises(ConfigError, match="webhook") as failure:
            use()
        assert "abc" not in str(failure.value) and "%" not in str(failure.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org/token",
        "ftp://example.org/token",
        "https:///token",
        "http://x:token/",
        "http://[token/",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="URL") as failure:
        Webhook(url, SECRET)
    assert "token" not in str(failure.value)


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
    with pytest.raises(ConfigError, match="header") as failure:
        Webhook("https://example.org/", SECRET, headers=headers)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="timeout of a webhook"):
        Webhook("https://example.org/", SECRET, timeout=seconds)


def test_importing_the_channels_does_not_import_aiohttp() -> None:
    program = (
        "import sys, retinue.channels.webhook, retinue.channels.console, retinue.channels.file; "
        "sys.exit('aiohttp' in sys.modules)"
    )
    path = str(Path(__file__).resolve().parents[2] / "src")
    process = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, timeout=SECONDS
    )
    assert process.returncode == 0


@run_async
async def test_the_example_receiver_of_the_tests_takes_no_forged_request() -> None:
    async with Receiver() as receiver:
        forger = Webhook(receiver.url, "another secret")
        with pytest.raises(RetinueError, match="401"):
            await forger.send(delivery())
        await forger.close()
        assert receiver.taken == {}
        assert msgspec.json.decode(receiver.requests[0][1])["type"] == "announcement"
