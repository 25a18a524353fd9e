"""One exchange over the shared pool: a head that was made before, pieces of a body that are sent from where they are,
and an answer as it comes.

aiohttp finds, opens, secures and keeps the connections and reads HTTP. Of its client only what follows redirects, keeps
cookies and builds headers anew for each request is left out: it would cost as much as everything else in a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import aiohttp
from aiohttp import http
from aiohttp.connector import Connection
from aiohttp.streams import StreamReader
from yarl import URL

from retinue.errors import ConfigError

MAX_HEADER = 64 << 10
TOGETHER = 256 << 10


class Wire:
    """The way of one model's requests through one pool."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], proxy: str | None = None
    ) -> None:
        for name, value in headers.items():
            if not name.isascii() or any(c in "\r\n\0" for c in name + value):
                raise ConfigError(f"the header {name!r} holds what no header may")
        assert session.connector is not None
        self.session = session
        self.connector, self.timeout = session.connector, session.timeout
        # Asked by the pool where to connect; it is never sent itself.
        self.target = aiohttp.ClientRequest(
            "POST",
            URL(url),
            headers=headers,
            skip_auto_headers=("user-agent", "accept-encoding", "content-type"),
            loop=asyncio.get_running_loop(),
            session=session,
            proxy=URL(proxy) if proxy else None,
        )
        sent = {name: value for name, value in self.target.headers.items() if name.lower() != "content-length"}
        lines = [f"POST {self.target.url.raw_path_qs} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        self.head = "\r\n".join([*lines, "Content-Length: "]).encode()

    def post(self, body: Sequence[bytes], leaves: Callable[[], None]) -> Exchange:
        """`async with` it: the body is sent, and the head of the answer is here. `leaves` is told when there is a
        connection and the first byte is about to be written to it."""
        return Exchange(self, body, leaves)


class Exchange:
    """A request and its answer. Its connection is used again, unless something of either is still on its way."""

    __slots__ = ("_body", "_connection", "_leaves", "_rest", "_wire", "content", "headers", "status")

    content: StreamReader
    headers: Mapping[str, str]
    status: int

    def __init__(self, wire: Wire, body: Sequence[bytes], leaves: Callable[[], None]) -> None:
        self._wire, self._body, self._leaves = wire, body, leaves
        self._connection: Connection | None = None
        self._rest: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Exchange:
        wire = self._wire
        self._connection = connection = await wire.connector.connect(wire.target, [], wire.timeout)
        try:
            await self._begin(connection)
        except BaseException:
            self._stop()
            _drop(connection)
            raise
        return self

    async def _begin(self, connection: Connection) -> None:
        protocol = connection.protocol
        if protocol is None or (transport := protocol.transport) is None:
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(
            read_until_eof=True, auto_decompress=False, max_line_size=MAX_HEADER, max_field_size=MAX_HEADER
        )
        writes = self._writes()
        self._leaves()
        transport.write(next(writes))
        while not protocol.writing_paused:
            more = next(writes, None)
            if more is None or transport.is_closing():
                break
            transport.write(more)
        else:
            # A provider may answer before it has read everything, and may never read the rest.
            writer = http.StreamWriter(protocol, asyncio.get_running_loop())
            self._rest = asyncio.get_running_loop().create_task(_write(writer, writes))
        while True:
            message, self.content = await protocol.read()
            if not 100 <= message.code < 200 or message.code == 101:
                break
        self.status, self.headers = message.code, message.headers

    def _writes(self) -> Iterator[bytes]:
        """What is sent at a time: small pieces together, for each time costs as much as copying some of them."""
        body = self._body
        size = sum(map(len, body))
        head = b"%b%d\r\n\r\n" % (self._wire.head, size)
        if size <= TOGETHER:
            yield b"".join((head, *body))
            return
        some, size = [head], len(head)
        for piece in body:
            if size + len(piece) > TOGETHER:
                yield b"".join(some)
                some, size = [], 0
            some.append(piece)
            size += len(piece)
        yield b"".join(some)

    async def __aexit__(self, *exc: object) -> None:
        assert self._connection is not None
        if self._stop():
            _drop(self._connection)
        else:
            # The pool closes a connection whose answer was not read to its end.
            self._connection.release()

    def _stop(self) -> bool:
        """Send no more; whether there was more to send."""
        if self._rest is None or self._rest.done():
            return False
        self._rest.cancel()
        return True


def _drop(connection: Connection) -> None:
    """Also what waits to be written: to a peer that does not read it would wait for ever, and keep the socket open."""
    protocol = connection.protocol
    if protocol is not None and protocol.transport is not None and protocol.transport.get_write_buffer_size():
        protocol.transport.abort()
    connection.close()


async def _write(writer: http.StreamWriter, pieces: Iterator[bytes]) -> None:
    """What fails here is told to whoever reads the answer, because the connection is lost."""
    try:
        for piece in pieces:
            await writer.drain()
            await writer.write(piece)
    except (aiohttp.ClientError, OSError):
        return
