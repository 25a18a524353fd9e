"""Reads and writes the editor's messages on stdin and stdout: one JSON message per line. Nothing
but the protocol is ever written there, whatever a library prints. A line that is not a message is
answered and dropped."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from typing import Any

from retinue.errors import ConfigError

MOST_BYTES = 32 << 20
"""Of one message."""
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
LAST_SECONDS = 1.0
"""An editor that has closed its end can still read what is ready."""


class EditorPipes:
    """Messages from and to the editor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when the editor has closed its end."""
        while True:
            try:
                line = await self._line()
            except asyncio.IncompleteReadError:
                return None
            if line is None:
                await self._refuse(
                    INVALID_REQUEST, f"A message has at most {MOST_BYTES} bytes. It was dropped."
                )
                continue
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(PARSE_ERROR, "The line is not JSON. It was dropped.")
                continue
            if not isinstance(message, dict):
                await self._refuse(INVALID_REQUEST, "A message is a JSON object. It was dropped.")
            elif problem := _problem(message):
                await self._refuse(INVALID_REQUEST, f"{problem} The message was dropped.")
            else:
                return message

    async def _line(self) -> bytes | None:
        """One line, None for one that is too long."""
        is_whole = True
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
                return line if is_whole else None
            except asyncio.LimitOverrunError as error:
                is_whole = False
                await self._reader.readexactly(error.consumed)

    async def _refuse(self, code: int, text: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})

    async def send(self, message: dict[str, Any]) -> None:
        """One line, whole. An editor that does not read is waited for."""
        self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        await self._writer.drain()

    async def close(self) -> None:
        """What is written already is sent, unless the editor no longer reads."""
        self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), LAST_SECONDS)
        except TimeoutError:
            self._writer.transport.abort()
        except OSError:
            return


def _problem(message: dict[str, Any]) -> str:
    """What the library would fail at, and end the agent with it."""
    id, method = message.get("id"), message.get("method", "")
    if isinstance(id, bool) or not isinstance(id, str | int | float | None):
        return "The id of a message is a string or a number."
    if not isinstance(method, str):
        return "The method of a message is a string."
    if not isinstance(message.get("error"), dict | None):
        return "The error of a message is an object."
    return ""


async def editor_pipes() -> EditorPipes:
    """The editor's streams, as descriptors that no other code knows: what is printed goes to
    stderr, and what reads stdin finds nothing."""
    if not (_is_pipe(0) and _is_pipe(1)):
        raise ConfigError(
            "`retinue acp` talks to an editor through pipes, and stdin or stdout is a file. "
            "Name the command in the configuration of your editor."
        )
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_BYTES)
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdin, "rb", buffering=0)
    )
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
        os.fdopen(stdout, "wb", buffering=0),
    )
    return EditorPipes(reader, asyncio.StreamWriter(transport, protocol, None, loop))


def _is_pipe(fd: int) -> bool:
    """Whether something can be waited for there: not in a file, and not in /dev/null."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
