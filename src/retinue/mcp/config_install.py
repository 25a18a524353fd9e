"""Our entry in a client's configuration: written with a copy of what was there, and a way back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from retinue.errors import ConfigError, NotFound
from retinue.mcp.client_configs import CLIENTS, ClientConfig, server_entry, with_entry

COPY = ".before-retinue"


@dataclass(frozen=True)
class PlannedChange:
    """A file as it is and as it is to be."""

    path: str
    before: str | None
    after: str

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
    before = None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            before = file.read()
    entry = None if command is None else server_entry(client, command, _variables(environ))
    return PlannedChange(path, before, with_entry(config, before or "", entry))


def _variables(environ: Mapping[str, str]) -> list[str]:
    """Those that are set and that we read: the keys of models, and where our folders are. Without
    the second, a server would not find the host that the command line finds."""
    from retinue.host.keys import carried

    ours = {*carried(environ), *(name for name in environ if name.startswith("XDG_"))}
    return sorted(ours - {"HOME"})


def _path(config: ClientConfig, environ: Mapping[str, str], project: str) -> str:
    if config.place == "project":
        return os.path.join(project, config.path)
    named = environ.get(config.home_variable, "") if config.home_variable else ""
    if named:
        return os.path.join(named, config.path.partition("/")[2])
    home = environ.get("HOME", "")
    if not home:
        raise ConfigError("HOME is not set, so the client's configuration cannot be found.")
    return os.path.join(home, config.path)


def write_change(change: PlannedChange) -> None:
    """Write the file, whole or not at all. What was there before the first change is kept in a
    copy; a file that is empty afterwards and was not there before is removed."""
    os.makedirs(os.path.dirname(change.path), exist_ok=True)
    if change.before is not None and not os.path.exists(change.copy):
        _put(change.copy, change.before, change.path)
    if change.after:
        _put(change.path, change.after, change.path)
    elif change.before is not None:
        os.unlink(change.path)


def _put(path: str, text: str, like: str) -> None:
    mode = os.stat(like).st_mode & 0o777 if os.path.exists(like) else 0o600
    real = os.path.realpath(path)
    draft = f"{real}.{os.getpid()}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, real)
