"""The MCP servers of a host: started when a plan needs them, shared by plans that name the same
ones, ended with the host. Their configuration is filled in with what commands have brought; that
stays in memory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of
from retinue.host.plan import Plan
from retinue.host.server_secrets import put_back

if TYPE_CHECKING:
    from retinue.tools.mcp_client import McpServers, ServerComplaint, ServerConfig, ServerStatus

START_SECONDS = 15.0
"""How long the start of a run waits for servers. Those that come later are there for the next
run."""
STATES = {
    "ready": "connected",
    "disabled": "disabled",
    "starting": "pending",
    "idle": "pending",
    "changed": "changed",
}


class McpPool:
    """`approvals_file` keeps approvals; `environ` gives what the host itself knows of the
    environment; `redactor` learns what is brought for servers, and what is configured for them,
    before any of them is started."""

    def __init__(
        self,
        approvals_file: Path | None,
        environ: Callable[[], Mapping[str, str]] = dict,
        redactor: Redactor | None = None,
    ) -> None:
        self._approvals_file, self._environ, self._redactor = (
            approvals_file,
            environ,
            Redactor() if redactor is None else redactor,
        )
        self._brought: dict[str, str] = {}
        self._pools: dict[str, McpServers] = {}
        self._starts: dict[str, asyncio.Task[None]] = {}

    async def tools(self, plan: Plan, env: Mapping[str, str]) -> dict[str, Any]:
        """The tools of a plan's servers, by name. ConfigError when a server that is required could
        not be used."""
        servers = await self.servers(plan, env)
        return {} if servers is None else {tool.schema.name: tool for tool in servers.tools()}

    async def servers(self, plan: Plan, env: Mapping[str, str]) -> McpServers | None:
        """The servers of a plan, started; None when it names none."""
        if not plan.servers:
            return None
        from retinue.tools.mcp_client import McpServers

        self._brought |= env
        self._redactor.learn(secrets_of(env))
        configs, complaints = self._configs(plan)
        key = hashlib.sha256(msgspec.json.encode((plan.root, configs, complaints))).hexdigest()
        if key not in self._pools:
            self._pools[key] = McpServers(
                configs,
                approvals_file=self._approvals_file,
                workspace=Path(plan.root) if plan.root else None,
                environ=self._all(),
                skipped=complaints,
                redactor=self._redactor,
            )
            self._starts[key] = asyncio.create_task(self._pools[key].start())
        start = self._starts[key]
        await asyncio.wait(
            {start}, timeout=float(self._all().get("RETINUE_MCP_SECONDS") or START_SECONDS)
        )
        if start.done() and (wrong := start.exception()) is not None:
            await self._drop(key)
            raise wrong
        return self._pools[key]

    def _configs(self, plan: Plan) -> tuple[list[ServerConfig], list[ServerComplaint]]:
        from retinue.tools.mcp_client.config_dialects import ROOTS, translate
        from retinue.tools.mcp_client.server_config import ServerConfigSource

        configs, complaints = [], []
        for source in plan.servers:
            source = put_back(source, self._all())
            tree = {ROOTS.get(source.dialect, "mcpServers"): source.servers}
            servers, wrong = translate(
                tree, ServerConfigSource(file=source.file, dialect=source.dialect), self._all(), {}
            )
            configs += servers
            complaints += [c for c in wrong if c.fatal]
        return configs, complaints

    def _all(self) -> dict[str, str]:
        return {**os.environ, **self._environ(), **self._brought}

    async def _drop(self, key: str) -> None:
        start, servers = self._starts.pop(key), self._pools.pop(key)
        start.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await start
        await servers.close()

    async def close(self) -> None:
        """End all servers, and leave nothing of them behind."""
        await asyncio.gather(*(self._drop(key) for key in list(self._pools)))


def told(status: ServerStatus) -> dict[str, Any]:
    """How a server is, as JSON and for people."""
    return {
        "name": status.name,
        "status": STATES.get(status.state, "skipped" if status.state == "skipped" else "failed"),
        "error": status.reason,
        "tools": list(status.tools),
        "withheld": [
            msgspec.structs.asdict(w) for w in status.withheld
        ],  # whole: a value leaves its defaults out
        "source": status.source,
        "notes": list(status.notes),
    }
