"""Counts which runs use the MCP servers of one agent: the servers stop with the last of these runs,
and start again with the next call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from retinue.errors import RetinueError

if TYPE_CHECKING:
    from retinue.tools.mcp_client import McpServers

UNUSED_SECONDS = 10.0
"""How long servers stay that were started to see what they offer, and are not used."""
Ended = Callable[[str], Awaitable[object]]
"""Waits for the end of a run."""


class ServerUse:
    """`ended` waits for the end of a run; `servers` are set when they are there."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._servers: McpServers | None = None
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._idle: asyncio.Task[None] | None = None

    def begin(self, servers: McpServers) -> None:
        """The servers were started, for what they offer to be seen."""
        self._servers = servers
        self._idle = asyncio.create_task(self._rest_unused())

    def note(self, run: str) -> None:
        """A run calls a tool."""
        if run not in self._runs:
            self._runs[run] = asyncio.create_task(self._release(run))

    async def _release(self, run: str) -> None:
        with contextlib.suppress(RetinueError):  # a run that is deleted has ended
            await self._ended(run)
        del self._runs[run]
        await self._rest()

    async def _rest_unused(self) -> None:
        await asyncio.sleep(UNUSED_SECONDS)
        await self._rest()

    async def _rest(self) -> None:
        if not self._runs and self._servers is not None:
            await self._servers.rest()

    async def close(self) -> None:
        tasks = [*self._runs.values(), *([self._idle] if self._idle is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
