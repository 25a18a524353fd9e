"""Secrets in a file of MCP servers. A plan is written down, so it has a name in their place; the
command brings their values, and a host that was started anew reads the file again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.core.ids import digest
from retinue.core.secret_matcher import LEAST
from retinue.core.secret_values import secrets_of_entry
from retinue.host.plan import ServerSource

PREFIX = "RETINUE_LITERAL_"
_PLACE = re.compile(r"\$\{(" + PREFIX + r"[0-9a-f]{16})\}")
_VARIABLE = re.compile(r"\$\{[^}:]*\}")


def take_out(
    source: ServerSource, secret_names: Iterable[str] = ()
) -> tuple[ServerSource, dict[str, str]]:
    """Servers with names in the place of secrets, and the values by name. `known` are secrets from
    elsewhere."""
    candidates = [one for name, entry in source.servers.items() for one in _secrets(name, entry)]
    secrets = {one for one in (*candidates, *secret_names) if _is_literal(one)}
    names = {
        one: f"{PREFIX}{digest(source.file, one)[:16]}"
        for one in sorted(secrets, key=lambda one: (-len(one), one))
    }
    values: dict[str, str] = {}

    def without(text: str) -> str:
        for value, name in names.items():
            if value in text:
                text = text.replace(value, f"${{{name}}}")
                values[name] = value
        return text

    return replace(source, servers=_changed(source.servers, without)), values


def put_back(source: ServerSource, values: Mapping[str, str]) -> ServerSource:
    """Servers as their file has them. A value that cannot be found keeps its name: such a server is
    reported as incomplete."""
    names = set(_PLACE.findall(str(source.servers)))
    if not names:
        return source
    if not names <= values.keys():
        values = {**_read_again(source), **values}
    return replace(
        source,
        servers=_changed(
            source.servers, lambda text: _PLACE.sub(lambda m: values.get(m[1], m[0]), text)
        ),
    )


def _read_again(source: ServerSource) -> dict[str, str]:
    from retinue.host.mcp_sources import tree_of
    from retinue.sandbox.regular_file import read_small
    from retinue.tools.mcp_client.config_dialects import entries
    from retinue.tools.mcp_client.server_config import ServerConfigSource

    if not source.file:
        return {}
    path = Path(source.file)
    try:
        table = entries(
            tree_of(read_small(path), path),
            ServerConfigSource(file=source.file, dialect=source.dialect),
        )[0]
    except (OSError, ValueError):
        return {}
    return take_out(replace(source, servers=table))[1]


def _secrets(name: str, entry: Any) -> Iterable[str]:
    return secrets_of_entry(name, entry).values() if isinstance(entry, dict) else ()


def _is_literal(value: str) -> bool:
    """A value that is there itself, and not only by the name of a variable."""
    return len(_VARIABLE.sub("", value).strip()) >= LEAST


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {k: _changed(v, change) for k, v in value.items()}
    return [_changed(v, change) for v in value] if isinstance(value, list) else value
