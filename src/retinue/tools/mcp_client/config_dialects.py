"""Translates the formats of other programs into `ServerConfig`: JSON with `mcpServers` or
`servers`, TOML with `mcp_servers`. What is not known is reported and omitted; what is of the wrong
type costs that server alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retinue.formats.json_comments import without_comments
from retinue.formats.safe_text import reveal
from retinue.formats.toml_text import load
from retinue.tools.mcp_client.config_variables import Expander, Wrong
from retinue.tools.mcp_client.entry_keys import list_of, type_name
from retinue.tools.mcp_client.server_config import ServerComplaint, ServerConfig, ServerConfigSource
from retinue.tools.mcp_client.server_entry import ServerEntry

ROOTS = {"vscode": "servers", "codex": "mcp_servers"}


def parse(text: str, is_toml: bool) -> Any:
    """ValueError with the place when it cannot be. JSON may have comments and commas too many, as
    in editors."""
    if is_toml:
        return load(text)
    try:
        try:
            return json.loads(text, object_pairs_hook=_once)
        except json.JSONDecodeError as error:
            plain = without_comments(text)
            if plain == text:
                raise error
            return json.loads(plain, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"invalid JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The same key twice would let a reader see one value and this program another."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice = next(k for n, (k, _) in enumerate(pairs) if k in dict(pairs[:n]))
        raise ValueError(f"duplicate key {reveal(twice, keep='')[:100]!r} in one object")
    return fields


def dialect_of(tree: Mapping[str, Any], path: Path | None) -> str:
    if path is not None and path.suffix == ".toml":
        return "codex"
    if path is not None and (path.parent.name == ".gemini" or path.name == "settings.json"):
        return "gemini"
    if "servers" in tree and "mcpServers" not in tree:
        return "vscode"
    return "claude"


def entries(
    tree: Mapping[str, Any], source: ServerConfigSource
) -> tuple[dict[str, Any], list[ServerComplaint]]:
    """The servers of a file by name, untranslated."""
    root = ROOTS.get(source.dialect, "mcpServers")
    table = tree.get(root)
    if isinstance(table, dict):
        return table, []
    if table is None and source.dialect in ("gemini", "codex"):  # they hold other settings too
        return {}, []
    text = (
        f"the file has no {root}"
        if table is None
        else f"it must be an object, not {type_name(table)}"
    )
    return {}, [ServerComplaint(text=text, file=source.file, field=root)]


def translate(
    tree: Mapping[str, Any],
    source: ServerConfigSource,
    environ: Mapping[str, str],
    inputs: Mapping[str, str],
) -> tuple[list[ServerConfig], list[ServerComplaint]]:
    raw_entries, complaints = entries(tree, source)
    servers = []
    descriptions = {
        i["id"]: i
        for i in list_of(tree.get("inputs"))
        if isinstance(i, dict) and isinstance(i.get("id"), str)
    }
    for name, entry in raw_entries.items():
        file, name_text = source.file, reveal(name, keep="")[:100]
        try:
            reader = ServerEntry(
                name, entry, source, Expander(environ, inputs, descriptions, source)
            )
            server = reader.codex() if source.dialect == "codex" else reader.json()
        except Wrong as error:
            complaints.append(
                ServerComplaint(
                    text=str(error), field=error.field, kind=error.kind, file=file, server=name_text
                )
            )
            continue
        complaints += [
            ServerComplaint(text=t, field=f, kind=k, fatal=False, file=file, server=name_text)
            for f, t, k in reader.notes
        ]
        servers.append(server)
    return servers, complaints
