"""Requests to a server over HTTP: its origin, redirects, proxies and events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit, urlunsplit

from retinue.formats.sse import SseParser
from retinue.tools.mcp_client.protocol import McpError, ServerLimits

if TYPE_CHECKING:
    import aiohttp

    from retinue.tools.mcp_client.oauth.server_login import ServerLogin

MAX_REDIRECTS = 5
MAX_LOGINS = 2
"""How often a request is sent again with another token: one after a login that has expired, one
with more allowed."""
CONNECT_SECONDS = 10.0
DEFAULT_PORTS = {"http": 80, "https": 443}


def origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return (
        parts.scheme,
        (parts.hostname or "").rstrip("."),
        parts.port or DEFAULT_PORTS.get(parts.scheme, 0),
    )


def url_text(url: str) -> str:
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
    """What both wires over HTTP do: a pool of their own, headers, the `login`, redirects, capped
    bodies."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        environ: Mapping[str, str],
        limits: ServerLimits,
        login: ServerLogin | None = None,
    ) -> None:
        self.url = url
        self._login = login
        self._headers = dict(headers)
        self._limits = limits
        self._proxy = _proxy(url, environ)
        self._pool: aiohttp.ClientSession | None = None
        self.n_useless = 0
        self.n_logins = 0

    @property
    def is_logging_in(self) -> bool:
        return self.n_logins > 0

    def start(self) -> None:
        import aiohttp

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
        """A request and its answer. One that was refused for want of a login did nothing, so it is
        sent again after a login."""
        if self._login is None:
            async with self._asked(method, url, headers, body) as response:
                yield response
            return
        from retinue.tools.mcp_client.oauth.auth_challenge import challenge_of

        for n in range(MAX_LOGINS + 1):
            token = self._login.token()
            own = {**headers, "Authorization": f"Bearer {token}"} if token else headers
            async with self._asked(method, url, own, body) as response:
                challenge = challenge_of(response.headers.getall("WWW-Authenticate", ()))
                is_refused = response.status == 401 or (
                    response.status == 403 and challenge.error == "insufficient_scope"
                )
                if not is_refused or n == MAX_LOGINS:
                    yield response
                    return
            self.n_logins += 1
            try:
                await self._login.renew(challenge, token)
            finally:
                self.n_logins -= 1

    @contextlib.asynccontextmanager
    async def _asked(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        import aiohttp

        if self._pool is None:
            raise McpError("closed", "the connection is closed")
        sent_headers = {
            "User-Agent": "retinue",
            "Accept-Encoding": "identity",
            **self._headers,
            **headers,
        }
        try:
            for _ in range(MAX_REDIRECTS + 1):
                async with self._pool.request(
                    method,
                    url,
                    data=body,
                    headers=sent_headers,
                    allow_redirects=False,
                    proxy=self._proxy,
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
                            f"it redirects to {url_text(target)}, which is not followed, so that "
                            "no header goes to another server; if that is right, write that "
                            "address into its configuration",
                        )
                    url = target
            raise McpError("refused", "the server redirects in a circle")
        except aiohttp.ClientConnectorError as error:
            raise McpError(
                "start", f"it cannot be reached at {url_text(url)}: {error.os_error}"
            ) from None
        except ValueError:
            raise McpError(
                "refused", f"the address it leads to from {url_text(url)} cannot be used"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            reason = f"the connection to {url_text(url)} failed: {type(error).__name__}"
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
                f"the server's answer has an encoding ({coding[:20]}) that was not requested",
                is_open=True,
            )
        async for chunk in response.content.iter_any():
            yield chunk

    async def events(self, response: aiohttp.ClientResponse) -> AsyncIterator[ServerSentEvent]:
        """`n_useless` counts the bytes; the reader of a useful event resets it."""
        too_large: list[bool] = []
        events = SseParser(self._limits.message_bytes, lambda: too_large.append(True))
        self.n_useless = 0
        async for chunk in self.chunks(response):
            self.n_useless += len(chunk)
            if self.n_useless > self._limits.flood_bytes:
                raise McpError(
                    "protocol", "the server sent too much data that was not requested", is_open=True
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
