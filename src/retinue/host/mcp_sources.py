"""Finds the MCP servers that a command can use: the project's if it is trusted, the user's, and
those on the command line. They are read and checked here, and started by the host."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from retinue.core.secret_values import secrets_of
from retinue.errors import ConfigError
from retinue.formats.safe_text import reveal
from retinue.host.plan import ServerSource
from retinue.host.project import Project
from retinue.host.project_paths import config_home
from retinue.host.server_secrets import take_out

OF_PROJECT = (
    ".retinue/mcp.json",
    ".mcp.json",
    ".vscode/mcp.json",
    ".gemini/settings.json",
    ".codex/config.toml",
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class ServerSources:
    """Servers that can be started, and what became of the others. `left_out` are in the form of
    `mcp_pool.server_status_json`."""

    sources: list[ServerSource] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def for_plan(
        self, environ: Mapping[str, str]
    ) -> tuple[tuple[ServerSource, ...], dict[str, str]]:
        """For a plan: the servers without a secret in them, and what is to be brought beside it:
        the values of all variables that a server could name, and the secrets that were taken
        out."""
        names = set(_WORD.findall(msgspec.json.encode(self.sources).decode()))
        env = (
            {name: value for name, value in environ.items() if name in names}
            if self.sources
            else {}
        )
        sources = []
        for source in self.sources:
            without, values = take_out(source, secrets_of(environ).values())
            sources.append(without)
            env |= values
        return tuple(sources), env


ITSELF = "it is Retinue itself; agents start sub-agents with their own tools"


def find_servers(
    project: Project,
    texts: Sequence[str],
    *,
    strict: bool,
    trusted: bool,
    more: Mapping[str, Any] | None = None,
    disabled: Sequence[str] = (),
) -> ServerSources:
    """The first that names a server wins: command line, configuration (`more`), project (the
    nearest folder first), user. Those that are `disabled` are omitted wherever they are
    configured."""
    servers = _find(project, texts, strict, trusted, more or {})
    sources = [
        replace(
            source, servers={n: entry for n, entry in source.servers.items() if n not in disabled}
        )
        for source in servers.sources
    ]
    return ServerSources(
        [source for source in sources if source.servers],
        servers.left_out,
        servers.names - set(disabled),
    )


def _find(
    project: Project, texts: Sequence[str], strict: bool, trusted: bool, more: Mapping[str, Any]
) -> ServerSources:
    servers = ServerSources()
    for text in texts:
        if text.lstrip().startswith("{"):
            _add(servers, text.encode(), None, project.environ)
        else:
            path = Path(os.path.join(project.paths.cwd, os.path.expanduser(text)))
            _add(servers, _read(path, f"--mcp-config {text}"), path, project.environ)
    if strict:
        return servers
    if more:
        _add(
            servers,
            msgspec.json.encode({"mcp_servers": more}),
            None,
            project.environ,
            dialect="codex",
        )
    for path in _of_project(project):
        raw = project.trust.trusted_bytes(path) if trusted else None
        if raw is not None:
            _add(servers, raw, path, project.environ, is_ours=False)
        else:
            _list(servers, path)
    own = Path(config_home(project.environ), "mcp.json")
    if own.is_file():
        _add(servers, _read(own, str(own)), own, project.environ)
    return servers


def _of_project(project: Project) -> Iterable[Path]:
    from retinue.config.project_root import folders_between
    from retinue.sandbox.bounded_read import real

    here, root = real(project.paths.cwd), real(project.paths.root)
    for folder in map(Path, folders_between(str(here), str(root))):
        for name in OF_PROJECT:
            path = folder / name
            if path.is_file() and real(path).is_relative_to(root):
                yield path


def _read(path: Path, label: str) -> bytes:
    from retinue.sandbox.regular_file import read_small

    try:
        return read_small(path)
    except OSError as error:
        raise ConfigError(f"{label} cannot be read ({error.strerror}).") from None


def _add(
    sources: ServerSources,
    raw: bytes,
    path: Path | None,
    environ: Mapping[str, str],
    *,
    is_ours: bool = True,
    dialect: str = "",
) -> None:
    """Take the servers of one file. A file that someone has named and that cannot be read is an
    error."""
    from retinue.tools.mcp_client.config_dialects import dialect_of, entries, translate
    from retinue.tools.mcp_client.server_config import ServerConfigSource

    name = str(path or "")
    try:
        tree = tree_of(raw, path)
    except ValueError as error:
        if is_ours:
            raise ConfigError(f"{name or '--mcp-config'}: {error}.") from None
        sources.left_out.append(status_line("", "failed", str(error), name))
        return
    source = ServerConfigSource(file=name, dialect=dialect or dialect_of(tree, path))
    servers, complaints = translate(tree, source, environ, {})
    for complaint in complaints:
        if complaint.fatal and not complaint.server and is_ours:
            raise ConfigError(f"{complaint}.")
        if complaint.fatal:
            sources.left_out.append(status_line(complaint.server, "failed", str(complaint), name))
    raw_entries = entries(tree, source)[0]
    own = {s.name: raw_entries[s.name] for s in servers if s.name not in sources.names}
    for same in [n for n, entry in own.items() if is_retinue(entry)]:
        del own[same]
        sources.left_out.append(status_line(same, "skipped", ITSELF, name))
    sources.names |= own.keys()
    if own:
        sources.sources.append(ServerSource(file=name, dialect=source.dialect, servers=own))


def is_retinue(entry: Any) -> bool:
    """Whether an entry starts `retinue mcp serve`: it is there for other clients."""
    if not isinstance(entry, dict):
        return False
    command, args = entry.get("command"), entry.get("args")
    words = [
        str(word)
        for part in (command, args)
        for word in (part if isinstance(part, list) else [part or ""])
    ]
    is_ours = os.path.basename(words[0]) == "retinue" or words[1:3] == ["-m", "retinue"]
    return is_ours and ["mcp", "serve"] in (words[1:3], words[3:5])


def _list(servers: ServerSources, path: Path) -> None:
    """Name what a project would start, and start nothing."""
    from retinue.tools.mcp_client.config_dialects import dialect_of, entries
    from retinue.tools.mcp_client.server_config import ServerConfigSource

    try:
        tree = tree_of(_read(path, str(path)), path)
    except (ValueError, ConfigError):
        return
    for name in entries(tree, ServerConfigSource(file=str(path), dialect=dialect_of(tree, path)))[
        0
    ]:
        hint = "this project is not trusted; review the file, then run `retinue trust`"
        servers.left_out.append(
            status_line(reveal(name, keep="")[:100], "untrusted", hint, str(path))
        )


def tree_of(raw: bytes, path: Path | None) -> dict[str, Any]:
    """What a file of servers says; ValueError says why it cannot be used."""
    from retinue.tools.mcp_client.config_dialects import parse

    try:
        tree = parse(raw.decode("utf-8-sig"), is_toml=path is not None and path.suffix == ".toml")
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8") from None
    if not isinstance(tree, dict):
        raise ValueError("expected an object with the key mcpServers")
    return tree


def status_line(name: str, status: str, error: str, source: str) -> dict[str, Any]:
    return {
        "name": name,
        "status": status,
        "error": error,
        "tools": [],
        "withheld": [],
        "source": source,
        "notes": [],
    }
