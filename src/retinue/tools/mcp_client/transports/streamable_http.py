"""A server behind an address: each message is a POST, its answer JSON or a stream of events. Where
a redirect leads is looked at first, so that no header goes to another origin."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retinue.tools.mcp_client.protocol import (
    METHOD_NOT_FOUND,
    McpError,
    SessionGone,
    decode,
    encode,
)
from retinue.tools.mcp_client.transports.base import Lost, Receive, Unreadable
from retinue.tools.mcp_client.transports.http_client import Http

if TYPE_CHECKING:
    import aiohttp

SESSION = "Mcp-Session-Id"
MAX_FAILURE = 64 << 10
RESUMES = 20


class StreamableHttpTransport(Http):
    """Streamable HTTP. In versions with a handshake the server may give a name (`Mcp-Session-Id`)
    that all later requests carry, and may break a stream off that continues when it is asked for by
    its last event."""

    is_inline = True
    _session = ""
    _version = ""

    async def open(self, receive: Receive, on_lost: Lost) -> None:
        self._receive = receive
        self.start()

    async def send(self, message: dict[str, Any], headers: Mapping[str, str]) -> None:
        own = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **headers,
        }
        own |= {SESSION: self._session} if self._session else {}
        self._version = headers.get("MCP-Protocol-Version", self._version)
        is_request = "id" in message and "method" in message
        async with self.ask("POST", self.url, own, encode(message)) as response:
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if response.status >= 400:
                await self._failed(message, response, kind, had_session=SESSION in own)
            elif not is_request or response.status == 202:
                if is_request:
                    raise McpError(
                        "protocol",
                        "the server accepted the request but will not answer it (HTTP 202)",
                        is_open=True,
                    )
            else:
                if message["method"] == "initialize":
                    self._session = response.headers.get(SESSION, "")
                await self._answer(message["id"], response, kind)

    async def _answer(self, id: int, response: aiohttp.ClientResponse, kind: str) -> None:
        if kind == "application/json":
            data = await self.body(response, self._limits.message_bytes)
            if data is None:
                reason = f"larger than {self._limits.message_bytes} bytes, which is the limit"
                self._receive(Unreadable(reason, id, is_too_large=True))
            else:
                self._take(data, id)
            return
        if kind != "text/event-stream":
            raise McpError(
                "protocol",
                f"the server answered with {kind[:60] or 'no content type'}",
                is_open=True,
            )
        last, retry, is_done = await self._stream(id, response)
        for _ in range(RESUMES):
            if is_done or not last:
                return
            await asyncio.sleep(min(retry, 30.0))
            own = {
                "Accept": "text/event-stream",
                "Last-Event-ID": last,
                "MCP-Protocol-Version": self._version,
            }
            own |= {SESSION: self._session} if self._session else {}
            async with self.ask("GET", self.url, own) as again:
                if again.status != 200:
                    return
                newest, retry, is_done = await self._stream(id, again)
                last = newest or last

    async def _stream(self, id: int, response: aiohttp.ClientResponse) -> tuple[str, float, bool]:
        """Take events until the answer to `id` is there. The last event's name, the pause that was
        asked for, and whether the answer came."""
        last, retry = "", 1.0
        try:
            async for event in self.events(response):
                last, retry = event.id or last, retry if event.retry is None else event.retry
                if event.is_too_large:
                    reason = f"larger than {self._limits.message_bytes} bytes, which is the limit"
                    self._receive(Unreadable(reason, id, is_too_large=True))
                    return last, retry, True
                if event.data and event.name in ("", "message") and self._take(event.data, id):
                    return last, retry, True
        except McpError as error:
            if error.fault != "lost" or not last:
                raise
        return last, retry, False

    def _take(self, data: bytes, id: int) -> bool:
        """Whether this was the answer to `id`. (2025-03-26 knew batches.)"""
        try:
            answer = decode(data)
        except ValueError as error:
            self._receive(Unreadable(f"invalid JSON: {error}", id))
            return True
        is_answer = False
        for message in answer if isinstance(answer, list) else [answer]:
            self._receive(message)
            is_answer |= (
                isinstance(message, dict) and "method" not in message and message.get("id") == id
            )
        return is_answer

    async def _failed(
        self,
        message: dict[str, Any],
        response: aiohttp.ClientResponse,
        kind: str,
        had_session: bool,
    ) -> None:
        status = response.status
        if status in (401, 403):
            raise McpError(
                "auth",
                f"the server rejected our credentials (HTTP {status}). Check its token or "
                "headers in the configuration",
            )
        if status == 404 and had_session:
            raise SessionGone
        if "id" not in message or "method" not in message:
            return
        data = await self.body(response, MAX_FAILURE) if kind == "application/json" else None
        if data is not None:
            with contextlib.suppress(ValueError):
                answer = decode(data)
                if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
                    self._receive({"jsonrpc": "2.0", "id": message["id"], "error": answer["error"]})
                    return
        code = METHOD_NOT_FOUND if status in (404, 405) else 0
        raise McpError(
            "refused", f"the server answered HTTP {status}", code=code, is_open=status >= 500
        )

    async def close(self) -> None:
        if self._session and self._pool is not None:
            headers = {SESSION: self._session, "MCP-Protocol-Version": self._version}
            with contextlib.suppress(Exception):
                async with (
                    asyncio.timeout(self._limits.close_seconds),
                    self.ask("DELETE", self.url, headers),
                ):
                    pass
            self._session = ""
        await self.stop()

    def tail(self) -> str:
        return ""

    def forget(self) -> None:
        self._session = self._version = ""
