"""Idle connections kept for the next request, by target, and the limit on open ones."""

from __future__ import annotations

import asyncio
import select
from collections import deque
from functools import partial

from retinue.models.http_connection import ProviderConnection
from retinue.models.new_connections import Dialer, Route

IDLE_SECONDS = 15.0
"""So long a connection is kept that no one uses. Servers close them after 5 to 75 s, and one that
closes while a request is on its way to it costs that request."""
LOOK_AFTER = 1.0
"""What has rested for so long is looked at before it is used: a loop that was blocked does not yet
know that the peer has closed it."""


class Pool:
    """`take` a connection that rests, or have one made by `connect`, and `give` it back in any
    case. At most `limit` are in use (0: as many as are requested)."""

    def __init__(self, dialer: Dialer, limit: int = 0) -> None:
        self.dialer, self.limit = dialer, limit
        self.idle_seconds = IDLE_SECONDS
        self.is_closed = False
        self.n_out = 0
        self.loop = asyncio.get_running_loop()
        self._idle: dict[Route, list[ProviderConnection]] = {}
        self._open: set[ProviderConnection] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._all_gone: asyncio.Future[None] | None = None

    def take(self, route: Route, now: float) -> ProviderConnection | None:
        """One that rests, if there is one and no one waits."""
        if self.limit and (self._waiting or self.n_out >= self.limit):
            return None
        connection = self._rested(route, now)
        if connection is not None:
            self.n_out += 1
        return connection

    async def connect(self, route: Route) -> ProviderConnection:
        if self.limit and (self._waiting or self.n_out >= self.limit):
            await self._wait()
        else:
            self.n_out += 1
        try:
            return self._rested(route, self.loop.time()) or await self.dialer.connect(
                route, partial(ProviderConnection, self, route)
            )
        except BaseException:
            self._leave()
            raise

    def give(self, connection: ProviderConnection) -> None:
        self._leave()
        if self.is_closed or not connection.is_clean:
            connection.drop()
            return
        life, seconds = connection.head.life, self.idle_seconds
        if life is not None and life - 1.0 < seconds:
            seconds = life - 1.0
        if seconds <= 0:
            connection.drop()
            return
        connection.rest()
        connection.is_new = False
        connection.idle_since = now = self.loop.time()
        connection.idle_until = now + seconds
        try:
            self._idle[connection.route].append(connection)
        except KeyError:
            self._idle[connection.route] = [connection]
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(self.idle_seconds, self._sweep)

    def _rested(self, route: Route, now: float) -> ProviderConnection | None:
        """The last that came to rest: its peer has had the least time to close it."""
        idle = self._idle.get(route)
        while idle:
            connection = idle.pop()
            is_over = now >= connection.idle_until or connection.transport.is_closing()
            is_old = now - connection.idle_since >= LOOK_AFTER
            if not is_over and not (is_old and _is_readable(connection.transport)):
                return connection
            connection.drop()
        return None

    # places

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self._leave()
            else:
                self._waiting.remove(waiter)
            raise

    def _leave(self) -> None:
        self.n_out -= 1
        while self._waiting and self.n_out < self.limit:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.n_out += 1
                waiter.set_result(None)

    # what becomes of connections

    def made(self, connection: ProviderConnection) -> None:
        self._open.add(connection)
        if self.is_closed:
            connection.drop()

    def lost(self, connection: ProviderConnection) -> None:
        self._open.discard(connection)
        idle = self._idle.get(connection.route, [])
        if connection in idle:
            idle.remove(connection)
        if not self._open and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    def _sweep(self) -> None:
        now = self.loop.time()
        for route, idle in list(self._idle.items()):
            for connection in [c for c in idle if c.idle_until <= now]:
                idle.remove(connection)
                connection.drop()
            if not idle:
                del self._idle[route]
        self._sweeper = self.loop.call_later(self.idle_seconds, self._sweep) if self._idle else None

    async def close(self) -> None:
        """Drop all of them, also those that are out; nothing is open when this ends."""
        self.drop()
        if self._open:
            self._all_gone = self.loop.create_future()
            await self._all_gone

    def drop(self) -> None:
        self.is_closed = True
        self.dialer.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._idle.clear()
        for connection in list(self._open):
            connection.drop()


def _is_readable(transport: asyncio.Transport) -> bool:
    """Whether there is something on it, or its end, that the loop has not read yet."""
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))
