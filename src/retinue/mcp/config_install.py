"""Adds Retinue's entry to a client's configuration, with a backup of the old file. A link that a
project has in the place of its file is not followed; one in the user's home is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from retinue.errors import ConfigError, NotFound
from retinue.host.foreign_file import replace_text, text_of
from retinue.mcp.client_configs import (
    CLIENTS,
    ClientConfig,
    entry_in,
    server_entry,
    with_entry,
)

COPY = ".before-retinue"


@dataclass(frozen=True)
class PlannedChange:
    """A file as it is and as it is to be. `is_first` when it has no entry of ours yet."""

    path: str
    before: str | None
    after: str
    is_first: bool

    @property
    def is_needed(self) -> bool:
        return (self.before or "") != self.after

    @property
    def copy(self) -> str:
        return self.path + COPY


def config_of(client: str) -> ClientConfig:
    if client not in CLIENTS:
        raise NotFound(f"Unknown client {client!r}. Known are: {', '.join(CLIENTS)}.")
    return CLIENTS[client]


def planned_change(
    client: str, command: list[str] | None, environ: Mapping[str, str], project: str
) -> PlannedChange:
    """What would be written; with no `command`, to take our entry out."""
    config = config_of(client)
    path = _path(config, environ, project)
    before = text_of(path)
    entry = None if command is None else server_entry(client, command, _variables(environ))
    after = with_entry(config, before or "", entry)
    is_first = entry_in(config, before or "") is None
    if entry is None and before is not None and not is_first:
        after = _as_it_was(config, before, path + COPY) or after
    return PlannedChange(path, before, after, is_first)


def _as_it_was(config: ClientConfig, text: str, copy: str) -> str:
    """The copy, if the file is what we made of it: its layout is the person's. Else ""."""
    try:
        before = text_of(copy) or ""
        is_ours = with_entry(config, before, entry_in(config, text)) == text
    except (ConfigError, ValueError, RecursionError):
        return ""
    return before if is_ours else ""


def _variables(environ: Mapping[str, str]) -> list[str]:
    """Those that are set and that we read: the keys of models, and where our folders are. Without
    the second, a server would not find the host that the command line finds."""
    from retinue.host.keys import carried

    ours = {*carried(environ), *(name for name in environ if name.startswith("XDG_"))}
    return sorted(ours - {"HOME"})


def _path(config: ClientConfig, environ: Mapping[str, str], project: str) -> str:
    """In a project by its real path and the names in it; in a home wherever the user's own links
    lead."""
    if config.place == "project":
        return os.path.join(os.path.realpath(project), config.path)
    named = environ.get(config.home_variable, "") if config.home_variable else ""
    if named:
        return os.path.realpath(os.path.join(named, config.path.partition("/")[2]))
    home = environ.get("HOME", "")
    if not home:
        raise ConfigError("HOME is not set, so the client's configuration cannot be found.")
    return os.path.realpath(os.path.join(home, config.path))


def write_change(change: PlannedChange) -> None:
    """Write the file, whole or not at all. What was there without our entry is kept in a copy; a
    file that is empty afterwards is removed. Refused if someone has written it meanwhile."""
    if text_of(change.path) != change.before:
        raise ConfigError(f"{change.path} was changed meanwhile. Nothing was written. Try again.")
    copy = os.path.basename(change.copy) if change.is_first else ""
    replace_text(change.path, change.before, change.after, copy)
