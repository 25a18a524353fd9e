"""MCP servers that agent files define for their own agent: moved from the definitions into a plan,
without their secrets. A file of a project that is not trusted has lost them before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from retinue.agent_files.agent_spec import AgentSpec
from retinue.formats.safe_text import reveal
from retinue.host.mcp_sources import ITSELF, ServerSources, is_retinue, status_line
from retinue.host.plan import ServerSource

DIALECTS = {"codex": "codex", "gemini": "gemini"}
"""Dialects of agent files whose servers are written in a way of their own."""


@dataclass
class OwnSources:
    """The servers of each agent by its name, what is brought for them beside the plan, and what
    became of those that cannot be used."""

    servers: dict[str, ServerSource] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    left_out: list[dict[str, Any]] = field(default_factory=list)


def own_sources(
    specs: Iterable[AgentSpec], environ: Mapping[str, str], disabled: Sequence[str] = ()
) -> OwnSources:
    """The servers that these agents define."""
    own = OwnSources()
    for spec in specs:
        entries: dict[str, Any] = {}
        for name, entry in spec.mcp_servers.items():
            if not entry or name in disabled:
                continue
            problem = ITSELF if is_retinue(entry) else _problem(spec, name, entry, environ)
            if problem:
                label = f"{spec.name}/{reveal(name, keep='')[:100]}"
                own.left_out.append(status_line(label, "failed", problem, spec.source.path))
            else:
                entries[name] = entry
        if entries:
            source = ServerSource(file=spec.source.path, dialect=_dialect(spec), servers=entries)
            (own.servers[spec.name],), env = ServerSources([source]).for_plan(environ)
            own.env |= env
    return own


def without_definitions(spec: AgentSpec) -> AgentSpec:
    """The same agent with the names of its servers only, as a plan keeps it."""
    names: dict[str, dict[str, Any]] = {name: {} for name in spec.mcp_servers}
    return replace(spec, mcp_servers=names) if spec.mcp_servers else spec


def _dialect(spec: AgentSpec) -> str:
    return DIALECTS.get(spec.source.dialect, "claude")


def _problem(spec: AgentSpec, name: str, entry: Any, environ: Mapping[str, str]) -> str:
    """What is wrong with an entry, "" if nothing is."""
    from retinue.tools.mcp_client.config_dialects import ROOTS, translate
    from retinue.tools.mcp_client.server_config import ServerConfigSource

    dialect = _dialect(spec)
    source = ServerConfigSource(file=spec.source.path, dialect=dialect)
    tree = {ROOTS.get(dialect, "mcpServers"): {name: entry}}
    _, complaints = translate(tree, source, environ, {})
    return next((str(one) for one in complaints if one.fatal), "")
