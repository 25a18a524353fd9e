"""A real server on loopback that takes webhooks as a careful receiver does: it checks each, and
takes a key once."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any

import msgspec
from aiohttp import web

from retinue import RetinueError
from retinue.channels.webhook import Webhook
from retinue.channels.webhook_signature import sign, verify_webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = base64.b64decode(SECRET.removeprefix("whsec_"))
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Receiver:
    """`taken` is what it took, by key. `answer` replaces what it does; `before` and `after` happen
    around taking."""

    def __init__(self, secret: str | list[str] = SECRET) -> None:
        self.secret = secret
        self.taken: dict[str, Any] = {}
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.peers: set[Any] = set()
        self.answer: Answer | None = None
        self.before: Callable[[], Awaitable[None]] | None = None
        self.after: Callable[[], Awaitable[None]] | None = None
        self.url = ""
        self._stack = AsyncExitStack()

    @property
    def texts(self) -> list[str]:
        return [body["data"]["text"] for body in self.taken.values()]

    async def __aenter__(self) -> Receiver:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._receive)
        # Nobody waits for requests that hang: that they do is the point of a test.
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook?token=in-the-url"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ):
        await self._stack.aclose()

    async def _receive(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            self.peers.add(request.transport.get_extra_info("peername"))
        body = await request.read()
        self.requests.append((dict(request.headers), body))
        if self.answer is not None:
            return await self.answer(request)
        try:
            key = verify_webhook(self.secret, request.headers, body)
        except RetinueError as error:
            return web.Response(status=401, text=str(error))
        if self.before is not None:
            await self.before()
        if key in self.taken:
            return web.Response(status=409)
        self.taken[key] = msgspec.json.decode(body)
        if self.after is not None:
            await self.after()
        return web.Response(status=202)


def status(code: int, **headers: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, headers=headers)

    return answer


async def hang(request: Any = None) -> Any:
    await asyncio.sleep(3_600)


@asynccontextmanager
async def hook(secret: Any = SECRET, **options: Any) -> AsyncIterator[tuple[Receiver, Webhook]]:
    async with Receiver() as receiver:
        channel = Webhook(receiver.url, secret, **options)
        yield receiver, channel
        await channel.close()


def signed(body: bytes = b"{}", id: str = "k", at: float | None = None) -> dict[str, str]:
    when = str(int(time.time() if at is None else at))
    return {
        "Webhook-Id": id,
        "Webhook-Timestamp": when,
        "WEBHOOK-SIGNATURE": sign(KEY, id, when, body),
    }
