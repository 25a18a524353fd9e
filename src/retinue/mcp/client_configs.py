"""The configuration files of MCP clients: where each keeps its servers, and how an entry of ours
looks there. Pure but for the look at which program we are; `config_install` writes the files."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
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
    try:
        before = parsed(config, text)
        if not isinstance(before.get(config.table, {}), dict):
            raise ValueError(f"{config.table} is not an object")
        after = _changed(config, before, entry)
        if after == before:
            return text
        new = _toml_text(config, text, entry) if config.is_toml else _json_text(text, after)
        if parsed(config, new) != after:
            raise ValueError("our entry is written in a way that we do not know")
        new.encode()
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(
            f"{config.path} cannot be changed here ({reason}): it may have comments. Add the entry "
            "yourself: `retinue mcp serve --print-config`."
        ) from None
    return new


def has_entry(config: ClientConfig, text: str) -> bool:
    """Whether the file has an entry of ours."""
    return NAME in (parsed(config, text).get(config.table) or {})


def parsed(config: ClientConfig, text: str) -> dict[str, Any]:
    """ValueError if it is not one object, or would not be the same when it is written again."""
    if config.is_toml:
        return tomllib.loads(text)
    data = (
        json.loads(text, object_pairs_hook=_once, parse_constant=_no_number) if text.strip() else {}
    )
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key is there twice")
    return fields


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _changed(
    config: ClientConfig, data: Mapping[str, Any], entry: Mapping[str, Any] | None
) -> dict[str, Any]:
    servers = {k: v for k, v in data.get(config.table, {}).items() if k != NAME or entry}
    servers |= {NAME: dict(entry)} if entry else {}
    rest = {k: v for k, v in data.items() if k != config.table or servers}
    return {**rest, config.table: servers} if servers else rest


def _json_text(before: str, data: Mapping[str, Any]) -> str:
    """With the indentation that the file has."""
    match = re.search(r"^([ \t]+)\"", before, re.MULTILINE)
    space = match[1] if match is not None else "  "
    return json.dumps(data, indent=space, ensure_ascii=False) + "\n" if data else ""


def _toml_text(config: ClientConfig, text: str, entry: Mapping[str, Any] | None) -> str:
    """Whole lines are kept: a table of ours is put at the end, and removed from where it is."""
    head = f"[{config.table}.{NAME}]"
    end = "\r\n" if "\r\n" in text else "\n"
    lines: list[str] = []
    is_ours = False
    for line in text.split("\n"):
        if line.lstrip().startswith("["):
            is_ours = line.strip() == head or line.strip().startswith(head[:-1] + ".")
        if not is_ours:
            lines.append(line.removesuffix("\r"))
    while lines and not lines[-1].strip():
        lines.pop()
    if entry is not None:
        lines += [*([""] if lines else []), head]
        lines += [f"{name} = {json.dumps(v, ensure_ascii=False)}" for name, v in entry.items()]
    return end.join(lines) + end if lines else ""
