"""A person's browser, and where it comes back to: a page on loopback that is there for one login,
or the address that the person copies from a browser on another machine."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

from retinue.tools.mcp_client.oauth.server_login import BrowserVisit, Visit
from retinue.tools.mcp_client.protocol import McpError

PATH = "/callback"
MINUTES = 10
MAX_LINE = 16 << 10
PAGE = "<!doctype html><meta charset=utf-8><title>Retinue</title><p>{}"


def on_loopback(opened: Callable[[str], None], seconds: float = MINUTES * 60) -> Visit:
    """`opened` gets the address to open in a browser. Only an answer with our `state` is taken, so
    that no other page on this machine can end the login."""

    @contextlib.asynccontextmanager
    async def visit(port: int) -> AsyncIterator[BrowserVisit]:
        page = _LoopbackPage(opened, seconds)
        try:
            server = await asyncio.start_server(page.answer, "127.0.0.1", port, limit=MAX_LINE)
        except OSError as error:
            raise McpError(
                "auth", f"port {port} for the login cannot be used: {error.strerror}"
            ) from None
        try:
            page.redirect_uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{PATH}"
            yield page
        finally:
            server.close()

    return visit


class _LoopbackPage:
    redirect_uri = ""

    def __init__(self, opened: Callable[[str], None], seconds: float) -> None:
        self._opened, self._seconds = opened, seconds
        self._state = ""
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def go(self, url: str, state: str) -> str:
        self._state = state
        self._opened(url)
        try:
            return await asyncio.wait_for(self._answer, self._seconds)
        except TimeoutError:
            raise McpError("auth", "no one logged in") from None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(10.0):
                line = (await reader.readuntil(b"\r\n")).decode("ascii", "replace").split()
                is_ours = len(line) == 3 and line[0] == "GET" and self._is_ours(line[1])
                words = "You can close this page." if is_ours else "This is not a login."
                body = PAGE.format(words).encode()
                head = (
                    f"HTTP/1.1 {'200 OK' if is_ours else '404 Not Found'}\r\n"
                    "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\n"
                    f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
                if is_ours and not self._answer.done():
                    self._answer.set_result(line[1])
        writer.close()

    def _is_ours(self, target: str) -> bool:
        try:
            parts = urlsplit(target)
            states = parse_qs(parts.query, max_num_fields=50).get("state", [""])
        except ValueError:
            return False
        is_known = hmac.compare_digest(states[0].encode(), self._state.encode())
        return parts.path == PATH and bool(self._state) and is_known


def pasted(show: Callable[[str], None], read: Callable[[], Awaitable[str]]) -> Visit:
    """For a browser on another machine: the person opens the address there, and copies the one that
    the browser ends at, although nothing answers there."""

    @contextlib.asynccontextmanager
    async def visit(port: int) -> AsyncIterator[BrowserVisit]:
        yield _PastedAddress(show, read, f"http://127.0.0.1:{port or 8765}{PATH}")

    return visit


class _PastedAddress:
    def __init__(
        self, show: Callable[[str], None], read: Callable[[], Awaitable[str]], uri: str
    ) -> None:
        self._show, self._read, self.redirect_uri = show, read, uri

    async def go(self, url: str, state: str) -> str:
        self._show(url)
        return (await self._read()).strip()
