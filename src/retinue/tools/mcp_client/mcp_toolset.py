"""An MCP server as a toolset of an agent: starts and stops with the runtime."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from retinue.core.ids import digest
from retinue.errors import ConfigError
from retinue.tools.base import Tool
from retinue.tools.mcp_client.server_config import ServerConfig
from retinue.tools.mcp_client.servers import McpServers


class McpServer:
    """The tools of an MCP server: `Agent(tools=[McpServer("files", command=["npx", ...])])`. It has
    a `command`, or a `url` with `headers`. `include` and `exclude` are names of its tools, with `*`
    and `?`. `timeout` is for each call. Its tools are called `mcp__name__tool`.

    Two with the same settings are the same server."""

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str] = (),
        url: str = "",
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        timeout: float | timedelta = 60.0,
    ) -> None:
        if bool(command) == bool(url):
            raise ConfigError(f"McpServer {name!r} needs either command=[...] or url=.")
        if isinstance(command, str):
            raise ConfigError(f"McpServer {name!r}: command is a list, such as ['npx', 'server'].")
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
        if not (0 < seconds < math.inf):
            raise ConfigError(f"McpServer {name!r}: timeout is more than 0 seconds.")
        self.config = ServerConfig(
            name=name,
            kind="http" if url else "stdio",
            command=command[0] if command else "",
            args=tuple(command[1:]),
            env=dict(env or {}),
            url=url,
            headers=dict(headers or {}),
            call_seconds=seconds,
            required=True,
            include=None if include is None else tuple(include),
            exclude=tuple(exclude),
        )
        self._servers: McpServers | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, McpServer) and other.config == self.config

    def __hash__(self) -> int:
        return hash((self.config.name, self.config.identity))

    def __repr__(self) -> str:
        return f"McpServer({self.config.name!r}, {digest(self.config.identity)[:8]})"

    @property
    def prefix(self) -> str:
        """Its tools bring their prefix: `mcp__name`."""
        return ""

    @property
    def secrets(self) -> dict[str, str]:
        return self.config.secrets

    async def open(self) -> Sequence[Tool[Any]]:
        """Start the server. `ConfigError` says why it cannot be used."""
        self._servers = McpServers([self.config], environ=os.environ)
        try:
            await self._servers.start()
        except BaseException:
            await self.close()
            raise
        return self._servers.tools()

    async def close(self) -> None:
        servers, self._servers = self._servers, None
        if servers is not None:
            await servers.close()
