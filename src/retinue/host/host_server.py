"""Serves the host's application: uvicorn on given sockets, until it is asked to stop. Connections
over a Unix socket must come from our own user; those that send nothing are closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from retinue.host.socket_peer import is_ours

HEAD_SECONDS = 10.0
HEAD_BYTES = 64 << 10
KEPT_SECONDS = 15
MOST_CONNECTIONS = 1_000
DAY = 86_400


class HostProtocol(H11Protocol):
    """One connection. A client that does not send a whole head in time is cut off; one over the
    Unix socket may be quiet between its requests for as long as it likes."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        line = transport.get_extra_info("socket")
        if line.family == socket.AF_UNIX:
            self.timeout_keep_alive = DAY
            if not is_ours(line):
                transport.abort()
                return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._expect_head()

    def on_response_complete(self) -> None:
        self._stop_timer()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class HostServer(uvicorn.Server):
    """Signals are left alone, and nothing is looked at ten times a second."""

    def __init__(self, app: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=HostProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEPT_SECONDS,
                timeout_graceful_shutdown=1,
                limit_concurrency=MOST_CONNECTIONS,
                h11_max_incomplete_event_size=HEAD_BYTES,
            )
        )
        self._finish = asyncio.Event()

    @property
    def n_connected(self) -> int:
        return len(self.server_state.connections)

    def finish(self) -> None:
        self.should_exit = True
        self._finish.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._finish.wait(), 1.0)

    async def listen(self, listener: socket.socket) -> None:
        """Serve one more socket, until this server finishes."""

        def connection() -> asyncio.Protocol:
            return HostProtocol(self.config, self.server_state, self.lifespan.state)

        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_server(connection, sock=listener))

    @contextlib.asynccontextmanager
    async def serving(self, *sockets: socket.socket) -> Any:
        """While this is open the sockets are served."""
        task = asyncio.create_task(self.serve(list(sockets)), name="retinue server")
        try:
            yield
        finally:
            self.finish()
            await task


def unix_listener(address: str) -> socket.socket:
    """A socket for its owner alone. What was there is replaced."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(address)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.listen(128)
    listener.setblocking(False)
    return listener
