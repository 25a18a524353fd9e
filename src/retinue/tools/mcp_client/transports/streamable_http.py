"""A server behind an address: each message is a POST, its answer JSON or a stream of events. Where
a redirect leads is looked at first, so that no header goes to another origin."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit, urlunsplit

from retinue.errors import ConfigError
from retinue.formats.sse import SseParser
from retinue.tools.mcp_client.protocol import (
    METHOD_NOT_FOUND,
    McpError,
    ServerLimits,
    SessionGone,
    decode,
    encode,
)
from retinue.tools.mcp_client.transports.base import Lost, Receive, Unreadable

if TYPE_CHECKING:
    import aiohttp

SESSION = "Mcp-Session-Id"
MAX_REDIRECTS = 5
MAX_FAILURE = 64 << 10
CONNECT_SECONDS = 10.0
RESUMES = 20
DEFAULT_PORTS = {"http": 80, "https": 443}


def origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return (
        parts.scheme,
        (parts.hostname or "").rstrip("."),
        parts.port or DEFAULT_PORTS.get(parts.scheme, 0),
    )


def shown(url: str) -> str:
    """An address for a message: without the parts that may hold secrets."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return urlunsplit(
        (parts.scheme, f"{host}:{parts.port}" if parts.port else host, parts.path, "", "")
    )


def may_follow(old: str, new: str) -> bool:
    """Whether a redirect stays with the one who was asked: the same origin, or its encrypted
    twin."""
    a, b = origin(old), origin(new)
    return a == b or (
        a[1] == b[1] and (a[0], a[2]) == ("http", 80) and (b[0], b[2]) == ("https", 443)
    )


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """An event, or how far a stream has come: the last id and pause, and whether an event was too
    large to be kept."""

    name: str
    data: bytes
    id: str = ""
    retry: float | None = None
    is_too_large: bool = False


class Http:
    """What both wires over HTTP do: a pool of their own, headers, redirects, capped bodies."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        environ: Mapping[str, str],
        limits: ServerLimits,
    ) -> None:
        self.url = url
        self._headers = dict(headers)
        self._limits = limits
        self._proxy = _proxy(url, environ)
        self._pool: aiohttp.ClientSession | None = None
        self.n_useless = 0

    def start(self) -> None:
        try:
            import aiohttp
        except ImportError:
            raise ConfigError(
                "MCP servers over HTTP need the extra http: pip install 'retinue[http]'"
            ) from None
        self._pool = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )

    @contextlib.asynccontextmanager
    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        import aiohttp

        if self._pool is None:
            raise McpError("closed", "the connection is closed")
        sent = {"User-Agent": "retinue", "Accept-Encoding": "identity", **self._headers, **headers}
        try:
            for _ in range(MAX_REDIRECTS + 1):
                async with self._pool.request(
                    method, url, data=body, headers=sent, allow_redirects=False, proxy=self._proxy
                ) as response:
                    if response.status not in (301, 302, 303, 307, 308):
                        yield response
                        return
                    target = urljoin(url, response.headers.get("Location", ""))
                    if not may_follow(url, target) or (
                        method == "POST" and response.status not in (307, 308)
                    ):
                        raise McpError(
                            "refused",
                            f"it redirects to {shown(target)}, which is not followed, so that no "
                            "header goes to "
                            "another server; if that is right, write that address into its "
                            "configuration",
                        )
                    url = target
            raise McpError("refused", "it redirects in a circle")
        except aiohttp.ClientConnectorError as error:
            raise McpError(
                "start", f"it cannot be reached at {shown(url)}: {error.os_error}"
            ) from None
        except ValueError:
            raise McpError(
                "refused", f"the address it leads to from {shown(url)} cannot be used"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            reason = f"the connection to {shown(url)} failed: {type(error).__name__}"
            raise McpError("lost", reason, is_open=True) from None

    async def body(self, response: aiohttp.ClientResponse, cap: int) -> bytes | None:
        """The whole body; None when it is longer than `cap`."""
        data = bytearray()
        async for chunk in self.chunks(response):
            data += chunk
            if len(data) > cap:
                return None
        return bytes(data)

    async def chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise McpError(
                "protocol",
                f"its answer is packed ({coding[:20]}), which was not asked for",
                is_open=True,
            )
        async for chunk in response.content.iter_any():
            yield chunk

    async def events(self, response: aiohttp.ClientResponse) -> AsyncIterator[ServerSentEvent]:
        """`n_useless` counts the bytes; whoever finds an event of use sets it back."""
        too_large: list[bool] = []
        events = SseParser(self._limits.message_bytes, lambda: too_large.append(True))
        self.n_useless = 0
        async for chunk in self.chunks(response):
            self.n_useless += len(chunk)
            if self.n_useless > self._limits.flood_bytes:
                raise McpError(
                    "protocol", "it floods its stream with what nobody had asked for", is_open=True
                )
            for name, data in events.feed(chunk):
                yield ServerSentEvent(name, data)
            yield ServerSentEvent("", b"", events.last_id, events.retry, bool(too_large))
            too_large.clear()

    async def stop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
            # The connector closes its transports in the next turn of the loop.
            await asyncio.sleep(0)


class StreamableHttpTransport(Http):
    """Streamable HTTP. In versions with a handshake the server may give a name (`Mcp-Session-Id`)
    that all later requests carry, and may break a stream off that goes on when it is asked for by
    its last event."""

    is_inline = True

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        environ: Mapping[str, str],
        limits: ServerLimits,
    ) -> None:
        super().__init__(url, headers, environ=environ, limits=limits)
        self._session = ""
        self._version = ""
        self._receive: Receive = lambda _: False

    async def open(self, receive: Receive, lost: Lost) -> None:
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
                        "protocol", "it took the request and promised no answer (202)", is_open=True
                    )
            else:
                if message["method"] == "initialize":
                    self._session = response.headers.get(SESSION, "")
                await self._answer(message["id"], response, kind)

    async def _answer(self, id: int, response: aiohttp.ClientResponse, kind: str) -> None:
        if kind == "application/json":
            data = await self.body(response, self._limits.message_bytes)
            if data is None:
                reason = (
                    f"it is longer than {self._limits.message_bytes} bytes, which is all "
                    "that is taken"
                )
                self._receive(Unreadable(reason, id, is_too_large=True))
            else:
                self._take(data, id)
            return
        if kind != "text/event-stream":
            raise McpError(
                "protocol", f"it answered with {kind[:60] or 'no content type'}", is_open=True
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
                    reason = (
                        f"it is longer than {self._limits.message_bytes} bytes, which is all "
                        "that is taken"
                    )
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
            found = decode(data)
        except ValueError as error:
            self._receive(Unreadable(f"it is not JSON that can be read: {error}", id))
            return True
        is_answer = False
        for message in found if isinstance(found, list) else [found]:
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
                f"it refuses us (HTTP {status}); check its token or headers in the configuration",
            )
        if status == 404 and had_session:
            raise SessionGone
        if "id" not in message or "method" not in message:
            return
        data = await self.body(response, MAX_FAILURE) if kind == "application/json" else None
        if data is not None:
            with contextlib.suppress(ValueError):
                found = decode(data)
                if isinstance(found, dict) and isinstance(found.get("error"), dict):
                    self._receive({"jsonrpc": "2.0", "id": message["id"], "error": found["error"]})
                    return
        code = METHOD_NOT_FOUND if status in (404, 405) else 0
        raise McpError("refused", f"it answered HTTP {status}", code=code, is_open=status >= 500)

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


def _proxy(url: str, environ: Mapping[str, str]) -> str | None:
    parts = urlsplit(url)
    get = {k.lower(): v for k, v in environ.items() if k.lower().endswith("_proxy")}.get
    if parts.hostname is None or parts.hostname in ("localhost", "127.0.0.1", "::1"):
        return None
    for name in get("no_proxy", "").split(","):
        bare = name.strip().lstrip("*").lstrip(".").lower()
        if name.strip() == "*" or (
            bare and (parts.hostname == bare or parts.hostname.endswith(f".{bare}"))
        ):
            return None
    return get(f"{parts.scheme}_proxy") or get("all_proxy")
