"""An HTTP response that is a stream of events, with little memory for each, because there may be
hundreds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response

from retinue.errors import RetinueError
from retinue.host.problem_documents import problem_of
from retinue.host.server_events import PING, ServerEvent

log = logging.getLogger("retinue.host")
PING_SECONDS = 15.0
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventStreamResponse(Response):
    """Sends events as they come, with a sign of life between them, until they end, the client goes
    away, or `left` is done. A client that reads slowly is waited for; what it has not read is in
    the log, not in memory."""

    def __init__(
        self,
        events: AsyncIterator[ServerEvent],
        departure: asyncio.Future[Any],
        first: ServerEvent | None = None,
    ) -> None:
        super().__init__()
        self._events, self._left, self._first = events, departure, first

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": HEADERS}
        await send(start)
        departure = asyncio.ensure_future(_disconnect(receive))
        try:
            await self._send_all(send, departure)
        except Exception as error:
            if not isinstance(error, RetinueError):
                log.exception("a stream failed")
            await _send(send, ServerEvent("problem", problem_of(error)).bytes())
        finally:
            departure.cancel()
            await self._events.aclose()  # type: ignore[attr-defined]
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Any, departure: asyncio.Future[None]) -> None:
        if self._first is not None:
            await _send(send, self._first.bytes())
        coming: asyncio.Future[Any] | None = None
        try:
            while not departure.done() and not self._left.done():
                if coming is None:
                    coming = asyncio.ensure_future(anext(self._events))
                awaited = (coming, departure, self._left)
                await asyncio.wait(
                    awaited, timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if coming.done():
                    event, coming = coming.result(), None
                    await _send(send, event.bytes())
                elif not departure.done() and not self._left.done():
                    await _send(send, PING)
        except StopAsyncIteration:
            return
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


async def _send(send: Any, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
