"""A minimal HTTP/1.1 server for the fake provider, which controls every byte so that it can be
faulty.

A protocol of asyncio instead of a web framework: it takes what clients really send (two User-Agent
headers, say), costs some microseconds a request, and can cut, drip and reset where a framework
would be correct."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

REASONS = {
    200: "OK",
    307: "Temporary Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
KEYS = frozenset(
    {"authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "proxy-authorization"}
)
JSON = "application/json"
SSE = "text/event-stream; charset=utf-8"
LAST_CHUNK = b"0\r\n\r\n"
MAX_HEAD = 1 << 20


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request. Header names are in lower case; a header that came twice is joined by a
    comma."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    is_too_large: bool = False

    @property
    def key(self) -> str:
        """The secret that came with it, in any of its places."""
        headers = self.headers
        bearer = headers.get("authorization", "")
        named = (
            headers.get("x-api-key") or headers.get("x-goog-api-key") or self.query.get("key", "")
        )
        return named or (bearer[7:].strip() if bearer[:7].lower() == "bearer " else "")

    @property
    def open_headers(self) -> dict[str, str]:
        """The headers without secrets."""
        return {name: value for name, value in self.headers.items() if name not in KEYS}


def head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


Serve = Callable[["HttpConnection", HttpRequest], Coroutine[Any, Any, None] | None]


class HttpConnection(asyncio.Protocol):
    """One client. `serve` answers immediately and returns None, or returns a coroutine that is
    cancelled when the client goes away. Requests that were sent ahead wait their turn."""

    def __init__(self, serve: Serve, connections: set[HttpConnection], max_body: int) -> None:
        self._serve = serve
        self._connections = connections
        self._max_body = max_body
        self._buffer = bytearray()
        self._drained: asyncio.Future[None] | None = None
        self._close_after = False
        self.task: asyncio.Task[None] | None = None
        self.unheard: Coroutine[Any, Any, Any] | None = None
        self.is_lost = False
        self.is_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._connections.discard(self)
        self.resume_writing()
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._pump()

    def pause_writing(self) -> None:
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def _pump(self) -> None:
        while self.task is None and not self.is_ended and not self.is_lost:
            ask = self._next()
            if ask is None:
                return
            self._close_after = (
                ask.is_too_large or ask.headers.get("connection", "").lower() == "close"
            )
            work = self._serve(self, ask)
            if work is None:
                self._answered()
            else:
                self.task = asyncio.get_running_loop().create_task(work)
                self.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.task = None
        if self.unheard is not None:
            self.unheard.close()
            self.unheard = None
        if task.cancelled():
            self.reset()
        elif (error := task.exception()) is not None:
            self.reset()
            context = {"message": "the fake provider failed", "exception": error, "task": task}
            asyncio.get_running_loop().call_exception_handler(context)
        else:
            self._answered()
            self._pump()

    def _answered(self) -> None:
        if self._close_after:
            self.finish()

    def _next(self) -> HttpRequest | None:
        buffer = self._buffer
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(buffer) > MAX_HEAD:
                self.reset()
            return None
        line, *fields = bytes(buffer[:end]).decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for field in fields:
            name, _, value = field.partition(":")
            name = name.lower()
            headers[name] = (
                f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
            )
        parts = line.split(" ")
        if len(parts) != 3:
            self.reset()
            return None
        path, _, query = parts[1].partition("?")
        n = headers.get("content-length", "0")
        is_too_large = not n.isdigit() or int(n) > self._max_body
        body: bytes | None = b""
        if not is_too_large:
            body, size = self._body(end + 4, headers, int(n))
            is_too_large = size > self._max_body
            if body is None and not is_too_large:
                return None
            del buffer[:size]
        return HttpRequest(
            parts[0], unquote(path), dict(parse_qsl(query)), headers, body or b"", is_too_large
        )

    def _body(self, start: int, headers: Mapping[str, str], n: int) -> tuple[bytes | None, int]:
        """The body and where it ends, or None while it is not all here."""
        buffer = self._buffer
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunked(start)
        if len(buffer) >= start + n:
            return bytes(buffer[start : start + n]), start + n
        if headers.get("expect", "").lower() == "100-continue" and len(buffer) == start:
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        return None, 0

    def _chunked(self, at: int) -> tuple[bytes | None, int]:
        parts: list[bytes] = []
        while (end := self._buffer.find(b"\r\n", at)) >= 0:
            size = bytes(self._buffer[at:end]).split(b";")[0].strip()
            if not size or size.strip(b"0123456789abcdefABCDEF"):
                self.reset()
                break
            n = int(size, 16)
            at = end + 2 + n + 2
            if len(self._buffer) < at:
                break
            if n == 0:
                return b"".join(parts), at
            parts.append(bytes(self._buffer[end + 2 : at - 2]))
        return None, at if at > self._max_body else 0

    def send(self, data: bytes) -> None:
        if not self.is_lost:
            self.transport.write(data)

    async def drain(self) -> None:
        if self._drained is not None:
            await self._drained

    def answer(
        self, status: int, headers: Mapping[str, str], body: bytes, kind: str = JSON
    ) -> None:
        """A whole answer in one piece."""
        self.send(
            head(status, {"content-type": kind, "content-length": str(len(body)), **headers}) + body
        )

    def finish(self) -> None:
        """A friendly end: what was sent arrives, then FIN."""
        self.is_ended = True
        self.transport.close()

    def reset(self) -> None:
        """An unfriendly end: RST."""
        self.is_ended = True
        if self.is_lost:
            return
        peer = self.transport.get_extra_info("socket")
        if peer is not None:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
