"""The transport of 2024-11-05: one stream of events brings everything in, and its first event names
where to POST."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

from retinue.tools.mcp_client.protocol import McpError, decode, encode
from retinue.tools.mcp_client.transports.base import Lost, Receive, Unreadable
from retinue.tools.mcp_client.transports.http_client import Http, origin


class LegacySseTransport(Http):
    """Old servers only. The place to POST to must be of the same origin as the stream."""

    is_inline = False
    _post: asyncio.Future[str] | None = None
    _reader: asyncio.Task[None] | None = None

    async def open(self, receive: Receive, on_lost: Lost) -> None:
        self.start()
        self._post = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(self._post, receive, on_lost))
        await asyncio.shield(self._post)

    async def _read(self, post: asyncio.Future[str], receive: Receive, on_lost: Lost) -> None:
        reason = "the server's stream ended"
        try:
            async with self.ask("GET", self.url, {"Accept": "text/event-stream"}) as response:
                if response.status in (401, 403):
                    raise McpError(
                        "auth",
                        f"the server rejected our credentials (HTTP {response.status}). "
                        "Check its headers",
                    )
                if response.status != 200:
                    raise McpError("refused", f"the server answered HTTP {response.status}")
                async for event in self.events(response):
                    if event.name == "endpoint" and not post.done():
                        target = urljoin(self.url, event.data.decode("utf-8", "replace").strip())
                        if origin(target) != origin(self.url):
                            raise McpError(
                                "refused", "the server names another server to send messages to"
                            )
                        post.set_result(target)
                    elif event.is_too_large:
                        reason = (
                            f"larger than {self._limits.message_bytes} bytes, which is the limit"
                        )
                        receive(Unreadable(reason, None, is_too_large=True))
                    elif event.data and event.name in ("", "message"):
                        try:
                            if receive(decode(event.data)):
                                self.n_useless = 0
                        except ValueError as error:
                            receive(Unreadable(f"invalid JSON: {error}", None))
        except McpError as error:
            reason = str(error)
            if not post.done():
                post.set_exception(error)
        finally:
            if not post.done():
                post.set_exception(
                    McpError(
                        "start", "the server's stream ended before it said where to send messages"
                    )
                )
            # No one may be waiting for it.
            post.exception()
            on_lost(reason)

    async def send(self, message: dict[str, Any], headers: Mapping[str, str]) -> None:
        if self._post is None:
            raise McpError("closed", "the connection is closed")
        target = await asyncio.shield(self._post)
        own = {"Content-Type": "application/json", **headers}
        async with self.ask("POST", target, own, encode(message)) as response:
            if response.status >= 400:
                raise McpError("refused", f"the server answered HTTP {response.status}")

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._reader = None
        await self.stop()

    def tail(self) -> str:
        return ""

    def forget(self) -> None:
        pass
