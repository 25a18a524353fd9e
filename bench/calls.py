"""Thousands of calls at once: how long they take against the provider's own latency, and how soon
silent ones are gone.

    python -m bench.calls [--calls 5000] [--latency 3] [--silent 1000]

The provider is a process of its own that reads nothing but lengths, so that what is measured is the
client. `ideal` is the latency; `bare` is a loop that a programmer would write with aiohttp, all
calls at once."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import re
import resource
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

import aiohttp

from retinue.core.history import Conversation, ShownMessages
from retinue.core.messages import UserMessage
from retinue.core.values import ModelInfo
from retinue.models.anthropic import AnthropicCodec
from retinue.models.base import ModelRequest
from retinue.models.http import ConnectionPool, HttpModel
from retinue.models.machine_limits import DESCRIPTORS

EVENTS: tuple[dict[str, Any], ...] = (
    {
        "type": "message_start",
        "message": {"id": "m", "model": "m", "content": [], "usage": {"input_tokens": 60}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)
BODY = b"".join(
    b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in EVENTS
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(
    BODY
)
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Provider(asyncio.Protocol):
    """Answers each request after a while; one to a model called `silent` never."""

    def __init__(self, latency: float) -> None:
        self._latency, self._data = latency, b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._data = self._data + data
        end = data.find(b"\r\n\r\n")
        if end >= 0 and len(data) - end - 4 >= int(LENGTH.search(data)[1]):  # type: ignore[index]
            self._data = b""
            if b'"model":"silent"' not in data:
                asyncio.get_running_loop().call_later(self._latency, self._answer)

    def _answer(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(HEAD + BODY)


def serve(latency: float, connection: Connection) -> None:
    async def story() -> None:
        DESCRIPTORS.raise_limit()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Provider(latency), "127.0.0.1", 0, backlog=16_384)
        connection.send(server.sockets[0].getsockname()[1])
        await asyncio.get_running_loop().create_future()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(story())


def request(n: int, model: str = "m", root: str = "") -> ModelRequest:
    conversation = Conversation()
    conversation.append(UserMessage(text=f"Task {n}: say that you are done."))
    return ModelRequest(
        run=f"r{n}",
        root=root or f"t{n % 10}",
        path="0",
        agent="one",
        model=model,
        turn=0,
        attempt=1,
        purpose="turn",
        instructions="Be brief.",
        messages=ShownMessages(conversation, 0, 1),
        tools=(),
        max_output=256,
        key=f"r{n}/1",
    )


def http_model(url: str, client: ConnectionPool, name: str = "m", **fields: Any) -> HttpModel:
    info = ModelInfo(name=name, max_output=1_024)
    return HttpModel(
        info, AnthropicCodec(), model=name, base_url=url, key="k", client=client, **fields
    )


async def many(url: str, n: int) -> float:
    client = ConnectionPool()
    model = http_model(url, client)
    began = time.perf_counter()
    replies = await asyncio.gather(
        *(model.complete(request(i), lambda text: None) for i in range(n))
    )
    elapsed = time.perf_counter() - began
    assert all(r.message.text for r in replies)
    await client.close()
    return elapsed


async def bare(url: str, n: int) -> float:
    body = json.dumps(
        {"model": "m", "stream": True, "max_tokens": 256, "messages": [{"role": "user"}]}
    ).encode()

    async def one(session: aiohttp.ClientSession) -> None:
        async with session.post(f"{url}/v1/messages", data=body) as answer:
            assert (await answer.read()).endswith(b"\n\n")

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        began = time.perf_counter()
        await asyncio.gather(*(one(session) for _ in range(n)))
        return time.perf_counter() - began


async def parked(url: str, n: int) -> dict[str, float]:
    """Silent calls of one tree; what others wait meanwhile, and how soon the silent ones are
    gone."""
    client = ConnectionPool()
    silent = http_model(url, client, "silent")
    loud = http_model(url, client, "m", governor=silent.governor, warmth=silent.warmth)
    tasks = [
        asyncio.create_task(silent.complete(request(i, "silent", "big"), lambda text: None))
        for i in range(n)
    ]
    began = time.perf_counter()
    while silent.governor.in_flight < n:
        await asyncio.sleep(0.005)
    out = {"all of them are out after": time.perf_counter() - began}
    began = time.perf_counter()
    await asyncio.gather(*(loud.complete(request(i), lambda text: None) for i in range(100)))
    out["100 calls of other trees meanwhile"] = time.perf_counter() - began
    began = time.perf_counter()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    out["cancelled after"] = time.perf_counter() - began
    assert silent.governor.in_flight == 0
    await client.close()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.calls", description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--latency", type=float, default=3.0, help="seconds")
    parser.add_argument("--silent", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    DESCRIPTORS.raise_limit()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(options.latency, there), daemon=True)
    process.start()
    url = f"http://127.0.0.1:{here.recv()}"
    for name, run in (("bare", bare), ("retinue", many)):
        before = resource.getrusage(resource.RUSAGE_SELF)
        times = [asyncio.run(run(url, options.calls)) for _ in range(options.rounds)]
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / options.rounds
        middle = statistics.median(times)
        print(
            f"{name:8} {options.calls} calls of {options.latency:g} s: {middle:.2f} s, "
            f"{middle / options.latency:.2f}x "
            f"({min(times):.2f} to {max(times):.2f}), {cpu:.2f} s of CPU"
        )
    for what, seconds in asyncio.run(parked(url, options.silent)).items():
        print(f"{options.silent} silent calls: {what} {seconds * 1000:.0f} ms")
    process.terminate()


if __name__ == "__main__":
    main()
