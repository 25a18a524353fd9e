"""The MCP servers of a host: started when a plan needs them, shared by plans that name the same
ones, stopped with the host; an agent's own servers stop with its runs. Their configuration is
filled in with what commands have brought; that stays in memory."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of
from retinue.host.plan import Plan, ServerSource
from retinue.host.server_secrets import put_back
from retinue.host.server_use import Ended, ServerUse

if TYPE_CHECKING:
    from retinue.tools.mcp_client import McpServers, ServerComplaint, ServerConfig, ServerStatus
    from retinue.tools.mcp_client.oauth.login_file import LoginFile

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
    before any of them is started. `wait` waits for the end of a run."""

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
        self._logins: LoginFile | None = None
        self._brought: dict[str, str] = {}
        self._pools: dict[str, McpServers] = {}
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._uses: dict[str, ServerUse | None] = {}
        self.wait: Ended = _never

    async def tools(self, plan: Plan, env: Mapping[str, str]) -> dict[str, Any]:
        """The tools of a plan's servers, by name. ConfigError when a server that is required could
        not be used."""
        servers = await self.servers(plan, env)
        return {} if servers is None else _tools(servers)

    async def own_tools(self, plan: Plan, env: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """The tools of the servers that agents have for themselves: by the agent's name, and then
        by their own."""
        own = await self.own(plan, env)
        shared = await self.servers(plan, env) if own else None
        others = (shared,) if shared is not None else ()
        return {agent: _tools(servers, *others) for agent, servers in own.items()}

    async def servers(self, plan: Plan, env: Mapping[str, str]) -> McpServers | None:
        """The servers of a plan, started; None when it names none."""
        if not plan.servers:
            return None
        self._learn(env)
        return await self._started(plan.root, plan.servers, self._approvals_file)

    async def own(self, plan: Plan, env: Mapping[str, str]) -> dict[str, McpServers]:
        """The servers that agents of a plan have for themselves, started or at rest."""
        if not plan.own_servers:
            return {}
        self._learn(env)
        names = list(plan.own_servers)
        servers = await asyncio.gather(
            *(
                self._started(plan.root, (plan.own_servers[name],), self._own_approvals(name), name)
                for name in names
            )
        )
        return dict(zip(names, servers, strict=True))

    def _learn(self, env: Mapping[str, str]) -> None:
        self._brought |= env
        self._redactor.learn(secrets_of(env))

    def _own_approvals(self, agent: str) -> Path | None:
        """Another agent's server may have the same name."""
        name = hashlib.sha256(agent.encode()).hexdigest()[:16]
        return (
            None
            if self._approvals_file is None
            else self._approvals_file.with_name(f"approvals-{name}.json")
        )

    async def _started(
        self,
        root: str,
        sources: Sequence[ServerSource],
        approvals_file: Path | None,
        agent: str = "",
    ) -> McpServers:
        """The same servers once. With an `agent` they are its own, and rest when no run of it uses
        them."""
        from retinue.tools.mcp_client import McpServers
        from retinue.tools.mcp_client.oauth.login_file import LoginFile

        self._logins = self._logins or LoginFile(logins_beside(self._approvals_file))
        configs, complaints = server_configs(sources, self._all())
        parts = (root, configs, complaints, agent)
        key = hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
        if key not in self._pools:
            use = self._uses[key] = ServerUse(self._ended) if agent else None
            self._pools[key] = McpServers(
                configs,
                approvals_file=approvals_file,
                workspace=Path(root) if root else None,
                environ=self._all(),
                skipped=complaints,
                redactor=self._redactor,
                used=use.note if use is not None else None,
                logins=self._logins,
            )
            self._starts[key] = asyncio.create_task(self._pools[key].start())
            if use is not None:
                use.begin(self._pools[key])
        start = self._starts[key]
        await asyncio.wait(
            {start}, timeout=float(self._all().get("RETINUE_MCP_SECONDS") or START_SECONDS)
        )
        if start.done() and (wrong := start.exception()) is not None:
            await self._drop(key)
            raise wrong
        await self._pools[key].start_after_logins()
        return self._pools[key]

    async def _ended(self, run: str) -> None:
        await self.wait(run)

    def _all(self) -> dict[str, str]:
        return {**os.environ, **self._environ(), **self._brought}

    async def _drop(self, key: str) -> None:
        start, servers = self._starts.pop(key), self._pools.pop(key)
        if (use := self._uses.pop(key)) is not None:
            await use.close()
        start.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await start
        await servers.close()

    async def close(self) -> None:
        """End all servers, and leave nothing of them behind."""
        await asyncio.gather(*(self._drop(key) for key in list(self._pools)))


def logins_beside(approvals_file: Path | None) -> Path | None:
    """The file of logins for a file of approvals."""
    return None if approvals_file is None else approvals_file.with_name("logins.json")


def server_configs(
    sources: Sequence[ServerSource], environ: Mapping[str, str]
) -> tuple[list[ServerConfig], list[ServerComplaint]]:
    """The servers of a plan, with their secrets and variables, and what is wrong with others."""
    from retinue.tools.mcp_client.config_dialects import ROOTS, translate
    from retinue.tools.mcp_client.server_config import ServerConfigSource

    configs, complaints = [], []
    for source in sources:
        source = put_back(source, environ)
        tree = {ROOTS.get(source.dialect, "mcpServers"): source.servers}
        about = ServerConfigSource(file=source.file, dialect=source.dialect)
        servers, wrong = translate(tree, about, environ, {})
        configs += servers
        complaints += [c for c in wrong if c.fatal]
    return configs, complaints


def _tools(servers: McpServers, *others: McpServers) -> dict[str, Any]:
    """The tools of servers by name; with one for all their resources, and for those of others."""
    from retinue.tools.mcp_client.resource_tool import ResourceTool

    tools: list[Any] = list(servers.tools())
    if servers.with_resources():
        tools.append(ResourceTool(servers, *others))
    return {tool.schema.name: tool for tool in tools}


async def _never(run: str) -> None:
    """Without a runtime no run ends before the servers do."""
    await asyncio.Event().wait()


def status_fields(status: ServerStatus, agent: str = "") -> dict[str, Any]:
    """How a server is, as JSON and for people. One that belongs to an `agent` and rests is as
    good as one that is connected."""
    is_resting = bool(agent) and status.state == "idle" and bool(status.tools)
    return {
        "name": f"{agent}/{status.name}" if agent else status.name,
        "status": "connected"
        if is_resting
        else STATES.get(status.state, "skipped" if status.state == "skipped" else "failed"),
        "error": status.reason,
        "tools": list(status.tools),
        "withheld": [
            msgspec.structs.asdict(w) for w in status.withheld
        ],  # whole: a value leaves its defaults out
        "source": status.source,
        "notes": list(status.notes),
    }
