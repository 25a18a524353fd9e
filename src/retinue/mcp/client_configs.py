"""The configuration files of MCP clients: where each lists its servers, and the form of Retinue's
entry. Pure but for the look at which program we are; `config_install` writes the files."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from retinue.errors import ConfigError
from retinue.formats.json_comments import without_comments
from retinue.formats.json_edit import with_value, without_value
from retinue.formats.toml_tables import with_table, without_table

NAME = "retinue"
OURS = ("type", "command", "args", "enabled", "env_vars")
"""What an entry of ours has to say. Whatever else is in it is a person's."""


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
    """The file with our entry, or without it when `entry` is None; everything else stays, and so
    does what a person has added to our entry. Raises `ConfigError` for a file that we cannot change
    without losing something."""
    try:
        before = parsed(config, text)
        if not isinstance(before.get(config.table, {}), dict):
            raise ValueError(f"{config.table} is not an object")
        known = before.get(config.table, {}).get(NAME)
        if entry is None and known is None:
            return text
        whole = None if entry is None else _joined(known, entry)
        new = text if known is not None and whole == known else _changed(config, text, known, whole)
        if _without_empty(config, parsed(config, new)) != _wanted(config, before, whole):
            raise ValueError("our entry is written in a way that we do not know")
        new.encode()
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(
            f"{config.path} cannot be changed here ({reason}). Add the entry yourself: `retinue "
            "mcp serve --print-config`."
        ) from None
    return new


def entry_in(config: ClientConfig, text: str) -> Any:
    """Our entry in the file, None if it has none."""
    return (parsed(config, text).get(config.table) or {}).get(NAME)


def parsed(config: ClientConfig, text: str) -> dict[str, Any]:
    """ValueError if it is not one object, or would not be the same when it is written again."""
    if config.is_toml:
        return tomllib.loads(text)
    bare = without_comments(text)
    data = (
        json.loads(bare, object_pairs_hook=_once, parse_constant=_no_number) if bare.strip() else {}
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


def _joined(known: Any, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Our entry with what a person has added to the one that is there."""
    added = known.items() if isinstance(known, dict) else ()
    return {**entry, **{name: value for name, value in added if name not in OURS}}


def _wanted(
    config: ClientConfig, before: Mapping[str, Any], entry: Mapping[str, Any] | None
) -> dict[str, Any]:
    servers = {k: v for k, v in before.get(config.table, {}).items() if k != NAME}
    if entry is not None:
        servers[NAME] = dict(entry)
    return _without_empty(config, {**before, config.table: servers})


def _without_empty(config: ClientConfig, data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k != config.table or v}


def _changed(config: ClientConfig, text: str, known: Any, entry: Mapping[str, Any] | None) -> str:
    path = (config.table, NAME)
    if config.is_toml:
        return without_table(text, path) if entry is None else with_table(text, path, entry)
    if entry is None:
        return without_value(text, path)
    if not isinstance(known, dict):
        return with_value(text, path, entry)
    for name in [*entry, *(name for name in known if name not in entry)]:
        if name not in entry:
            text = without_value(text, (*path, name))
        elif name not in known or known[name] != entry[name]:
            text = with_value(text, (*path, name), entry[name])
    return text
