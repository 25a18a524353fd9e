"""One connection to a provider, with one request at a time. An immediate answer costs one wait."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from retinue.models.answer_head import CHUNKED, MAX_HEAD, UNTIL_CLOSED, AnswerHead, NotHttp, ends_at
from retinue.models.chunked_body import BrokenBody, Chunks

if TYPE_CHECKING:
    from retinue.models.kept_connections import Pool
    from retinue.models.new_connections import Route

MOST_UNREAD = 256 << 10
"""So much of a body may wait to be read; then the peer has to wait."""
MOST_INTERIM = 32
"""Answers before the answer (1xx)."""
# The phases of a connection, in their order.
IDLE, HEAD = 0, 1
LENGTH, IN_CHUNKS, TO_THE_END = 2, 3, 4
DONE = 5
_BEGIN = b"HTTP/1."


class ProviderConnection(asyncio.Protocol):
    """`send` a request, wait for its `answer`, `read` until nothing more comes. The code that took
    it from its pool gives it back, and the pool keeps it if it `is_clean`."""

    __slots__ = (
        "_buffer",
        "_chunks",
        "_error",
        "_is_full",
        "_is_lost",
        "_is_paused",
        "_is_spoiled",
        "_left",
        "_loop",
        "_n_interim",
        "_phase",
        "_pieces",
        "_size",
        "_unsent",
        "_waiter",
        "head",
        "idle_since",
        "idle_until",
        "is_new",
        "pool",
        "route",
        "transport",
        "until",
        "why",
    )

    head: AnswerHead
    transport: asyncio.Transport

    def __init__(self, pool: Pool, route: Route) -> None:
        self.pool, self.route = pool, route
        self.idle_since = self.idle_until = 0.0
        self.is_new = True
        self.until, self.why = math.inf, ""
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._pieces: list[bytes] = []
        self._chunks: Chunks | None = None
        self._unsent: Iterator[bytes] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._phase = IDLE
        self._left = 0
        self._size = 0
        self._n_interim = 0
        self._is_full = self._is_paused = self._is_spoiled = self._is_lost = False

    @property
    def is_whole(self) -> bool:
        """Whether all of the answer has come, read or not."""
        return self._phase == DONE

    @property
    def is_clean(self) -> bool:
        """Whether nothing of the last exchange is left on the way, in either direction."""
        return (
            self._phase == DONE
            and self.head.is_kept
            and self._unsent is None
            and not self._is_spoiled
            and self._error is None
            and not self.transport.get_write_buffer_size()
        )

    # the request

    def send(self, data: bytes, more: Iterator[bytes] | None = None) -> None:
        """Write it, and then what is more, as fast as the peer reads it."""
        if self._error is not None:
            raise self._error
        self._phase, self._n_interim, self._unsent = HEAD, 0, more
        self.transport.write(data)
        if more is not None:
            self._write()
        if self._buffer:
            # On a connection that is new a peer may say no before it is asked. What it says then
            # cannot be known.
            early, self._is_spoiled = bytes(self._buffer), True
            self._buffer.clear()
            self.data_received(early)

    def _write(self) -> None:
        transport, unsent = self.transport, self._unsent
        while unsent is not None and not self._is_full and not transport.is_closing():
            piece = next(unsent, None)
            if piece is None:
                self._unsent = unsent = None
            else:
                transport.write(piece)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._write()

    # the answer

    async def answer(self) -> AnswerHead:
        """Its head. What was sent need not have been read for it."""
        while self._phase == HEAD:
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            await self._waiter
        return self.head

    async def read(self) -> bytes:
        """What has come of its body meanwhile; nothing once all of it was read."""
        while not self._pieces:
            if self._phase == DONE:
                return b""
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            await self._waiter
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()
        return data

    def whole(self) -> bytes | None:
        """All of the body, which stays here to be read, if all of it has come."""
        if self._phase != DONE:
            return None
        if len(self._pieces) != 1:
            self._pieces[:] = [b"".join(self._pieces)]
        return self._pieces[0]

    def expire(self) -> None:
        """The time that its user has set is over."""
        if self._phase != DONE and self._error is None:
            self._error = TimeoutError(self.why)
            self.drop()
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def rest(self) -> bool:
        """Nothing is expected; whether nothing was left to read."""
        was_read = not self._pieces
        self._phase = IDLE
        self._pieces.clear()
        self._size = 0
        return was_read

    def drop(self) -> None:
        """Also what waits to be written: a peer that does not read would keep it waiting, and keep
        the socket."""
        self._unsent = None
        if self._error is None:
            self._error = BrokenBody("the connection was closed on this side")
        if not self._is_lost:  # Python 3.11 cannot abort a transport that has closed by itself
            self.transport.abort()

    # what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.pool.made(self)

    def data_received(self, data: bytes) -> None:
        try:
            if self._phase == HEAD:
                self._take_head(data)
            elif self._phase not in (IDLE, DONE):
                self._take_body(data)
            elif self._phase == IDLE and self.is_new and len(self._buffer) <= MAX_HEAD:
                self._buffer += data
            else:
                self._is_spoiled = True
                self.drop()
        except (NotHttp, BrokenBody) as error:
            self._error = error
            self.drop()
        self._wake()

    def _take_head(self, data: bytes) -> None:
        buffer = self._buffer
        if buffer:
            start = max(0, len(buffer) - 2)
            buffer += data
            end = ends_at(buffer, start)
            if end:
                data = bytes(buffer)
                buffer.clear()
        else:
            end = ends_at(data)
            if not end:
                buffer += data
        if end > MAX_HEAD or len(buffer) > MAX_HEAD:
            raise NotHttp(f"the headers are larger than {MAX_HEAD >> 10} KiB")
        if not end:
            if not buffer.startswith(_BEGIN[: len(buffer)]):
                raise NotHttp("the answer does not start with HTTP/1")
            return
        head = AnswerHead(data[:end])
        if head.status < 200 and head.status != 101:
            self._n_interim += 1
            if self._n_interim > MOST_INTERIM:
                raise NotHttp("too many interim answers before the final one")
            if len(data) > end:
                self._take_head(data[end:])
            return
        length = head.length
        self.head, self._left = head, length
        if 0 < length == len(data) - end:
            # All of it in one piece: the answer that is not streamed.
            self._phase = DONE
            self._pieces.append(data[end:])
            return
        self._phase = LENGTH if length > 0 else PHASES[length]
        if length == CHUNKED:
            self._chunks = Chunks()
        if len(data) > end:
            self._take_body(data[end:])

    def _take_body(self, data: bytes) -> None:
        if self._phase == LENGTH:
            if len(data) >= self._left:
                self._is_spoiled = self._is_spoiled or len(data) > self._left
                data, self._phase = data[: self._left], DONE
            self._left -= len(data)
            self._pieces.append(data)
        elif self._chunks is not None:
            self._pieces += self._chunks.feed(data)
            if self._chunks.is_done:
                self._is_spoiled = bool(self._chunks.rest)
                self._phase, self._chunks = DONE, None
        elif self._phase == DONE:
            self._is_spoiled = True
        else:
            self._pieces.append(data)
        self._size += len(data)
        if self._size > MOST_UNREAD and self._phase != DONE and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._unsent = None
        self._end(error)
        self.pool.lost(self)

    def _end(self, error: Exception | None) -> None:
        if self._error is not None:
            # Whatever ends now was ended by us, and is not the end of an answer.
            pass
        elif self._phase == TO_THE_END and error is None:
            self._phase = DONE
        else:
            when = (
                "before an answer came" if self._phase <= HEAD else "before the answer was complete"
            )
            why = f" ({error})" if error is not None else ""
            self._error = BrokenBody(f"the connection ended {when}{why}")
            if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
                # A number of OpenSSL is none of the system.
                self._error.__cause__ = error
        self._wake()


PHASES = {0: DONE, UNTIL_CLOSED: TO_THE_END, CHUNKED: IN_CHUNKS}
