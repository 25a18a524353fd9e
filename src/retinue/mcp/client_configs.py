"""The configuration files of MCP clients: where each keeps its servers, and how an entry of ours
looks there. Pure but for the look at which program we are; `config_install` writes the files."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from retinue.errors import ConfigError

NAME = "retinue"


@dataclass(frozen=True)
class ClientConfig:
    """The file of one client, from the user's home or the project, and the table of servers in
    it."""

    client: str
    path: str
    table: str
    place: Literal["home", "project"] = "home"
    home_variable: str = ""
    """A variable that replaces the first folder of the path, when it is set."""

    @property
    def is_toml(self) -> bool:
        return self.path.endswith(".toml")


CLIENTS: dict[str, ClientConfig] = {
    config.client: config
    for config in (
        ClientConfig("claude", ".mcp.json", "mcpServers", "project"),
        ClientConfig("codex", ".codex/config.toml", "mcp_servers", home_variable="CODEX_HOME"),
        ClientConfig("cursor", ".cursor/mcp.json", "mcpServers", "project"),
        ClientConfig("vscode", ".vscode/mcp.json", "servers", "project"),
        ClientConfig("gemini", ".gemini/settings.json", "mcpServers"),
        ClientConfig("opencode", "opencode.json", "mcp", "project"),
    )
}


def server_command(flags: Sequence[str] = ()) -> list[str]:
    """How a client starts us: the installed program, or the module of this Python."""
    program = shutil.which("retinue")
    start = [program] if program else [sys.executable, "-m", "retinue"]
    return [*start, "mcp", "serve", *flags]


def server_entry(
    client: str, command: Sequence[str], variables: Sequence[str] = ()
) -> dict[str, Any]:
    """Our entry as this client writes one. `variables` are those that we need of its environment,
    for a client that passes on only what its configuration names."""
    if client == "opencode":
        return {"type": "local", "command": list(command), "enabled": True}
    entry: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    if client == "vscode":
        return {"type": "stdio", **entry}
    if client == "codex":
        entry |= {"startup_timeout_sec": 20, "tool_timeout_sec": 60}
        return {**entry, "env_vars": list(variables)} if variables else entry
    return entry


def shown_config(command: Sequence[str]) -> str:
    """What most clients take, for people to copy."""
    entry = server_entry("claude", command)
    return json.dumps({"mcpServers": {NAME: entry}}, indent=2, ensure_ascii=False)


def with_entry(config: ClientConfig, text: str, entry: Mapping[str, Any] | None) -> str:
    """The file with our entry, or without it when `entry` is None; everything else stays. Raises
    `ConfigError` for a file that we cannot change without losing something."""
    if config.is_toml:
        return _in_toml(config, text, entry)
    try:
        data = json.loads(text) if text.strip() else {}
        servers = data.setdefault(config.table, {})
        if not isinstance(servers, dict):
            raise ValueError(f"{config.table} is not an object")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{config.path} cannot be changed here ({error}): it may have comments. Add the entry "
            "yourself: `retinue mcp serve --print-config`."
        ) from None
    if entry is None:
        servers.pop(NAME, None)
        if not servers:
            del data[config.table]
    else:
        servers[NAME] = dict(entry)
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n" if data else ""


def _in_toml(config: ClientConfig, text: str, entry: Mapping[str, Any] | None) -> str:
    """Whole lines are kept: a table of ours is put at the end, and removed from where it is."""
    head = f"[{config.table}.{NAME}]"
    lines: list[str] = []
    is_ours = False
    for line in text.splitlines():
        if line.lstrip().startswith("["):
            is_ours = line.strip() == head or line.strip().startswith(head[:-1] + ".")
        if not is_ours:
            lines.append(line)
    while lines and not lines[-1].strip():
        lines.pop()
    if entry is not None:
        lines += [*([""] if lines else []), head]
        lines += [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
    return "\n".join(lines) + "\n" if lines else ""
