"""A network between a worker and the database that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path


class Proxy:
    """Listens in `folder` for the server whose socket is in `target`."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.folder, self._target = folder, target / ".s.PGSQL.5432"
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False

    async def start(self) -> None:
        self.folder.mkdir()
        self._server = await asyncio.start_unix_server(self._serve, self.folder / ".s.PGSQL.5432")

    async def cut(self, seconds: float) -> None:
        """No byte passes for a while, and no connection survives."""
        self._is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(seconds)
        self._is_cut = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            theirs, ours = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, ours}
        await asyncio.gather(self._pass(reader, ours), self._pass(theirs, writer))
        self._writers -= {writer, ours}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def stop(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
