"""MCP over stdin and stdout: one message a line. Nothing else is ever written to stdout, whatever a
library prints."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from retinue.host.daemon_threads import LineWriter
from retinue.mcp import rpc_messages as rpc
from retinue.mcp.rpc_messages import RpcError
from retinue.mcp.rpc_server import MOST_CALLS, RpcServer, RpcSession

MOST_BYTES = 32 << 20
"""Of one message."""
CHUNK = 1 << 16
MOST_TASKS = 2 * MOST_CALLS
LAST_SECONDS = 1.0
"""A client that has closed its end can still read what is almost ready."""


class LineReader:
    """Bytes in, whole lines out. A line that is too long is dropped."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most, self._buffer, self._is_skipping = most, bytearray(), False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that are whole now; None for one that was too long."""
        out: list[bytes | None] = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._add(piece)
            out.append(None if self._is_skipping else bytes(self._buffer))
            self._buffer.clear()
            self._is_skipping = False
        self._add(rest)
        return [line for line in out if line is None or line.strip()]

    def _add(self, piece: bytes) -> None:
        if len(self._buffer) + len(piece) > self._most:
            self._is_skipping = True
            self._buffer.clear()
        elif not self._is_skipping:
            self._buffer += piece


class StdioServer:
    """Serves one client until it closes its end."""

    def __init__(self, server: RpcServer) -> None:
        self._server, self._session = server, RpcSession(outlet=self._send)
        self._lines = LineReader()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stdin, stdout = _taken_streams()
        self._writer = LineWriter(stdout)
        self._is_unheard = asyncio.Event()

    async def serve(self) -> None:
        reading = asyncio.ensure_future(self._read_all())
        unheard = asyncio.ensure_future(self._is_unheard.wait())
        await asyncio.wait({reading, unheard}, return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
        unheard.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_SECONDS)
        await self._session.leave()

    async def _read_all(self) -> None:
        """Take messages until the client closes its end."""
        chunks: asyncio.Queue[bytes] = asyncio.Queue(16)
        loop = asyncio.get_running_loop()
        threading.Thread(target=_read, args=(self._stdin, loop, chunks), daemon=True).start()
        while data := await chunks.get():
            for line in self._lines.feed(data):
                while len(self._tasks) > MOST_TASKS:  # it sends faster than it reads
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                self._take(line)
            await asyncio.sleep(0)

    def _take(self, line: bytes | None) -> None:
        task = asyncio.ensure_future(self._handle(line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, line: bytes | None) -> None:
        try:
            if line is None:
                raise RpcError(rpc.INVALID_REQUEST, f"A message has at most {MOST_BYTES} bytes.")
            message = rpc.read_message(line)
        except RpcError as error:
            await self._send(rpc.error_message(error))
            return
        await self._server.handle(message, self._session, self._send)

    async def _send(self, message: dict[str, Any]) -> None:
        """One line, whole. A client that does not read is waited for. For one that has closed that
        end nothing more is begun."""
        try:
            await self._writer.write(rpc.encode(message) + b"\n")
        except OSError:
            self._is_unheard.set()


def _taken_streams() -> tuple[int, int]:
    """The client's streams, as descriptors that no other code knows: what is printed goes to
    stderr, and what reads stdin finds nothing."""
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    return stdin, stdout


def _read(fd: int, loop: asyncio.AbstractEventLoop, chunks: asyncio.Queue[bytes]) -> None:
    """In a thread: a stdin that is a file or a terminal can be waited for in no other way."""
    put: Callable[[bytes], Any] = chunks.put
    data = b"-"
    while data:
        try:
            data = os.read(fd, CHUNK)
        except OSError:
            data = b""
        try:
            asyncio.run_coroutine_threadsafe(put(data), loop).result()
        except RuntimeError:
            return  # the loop is closed
