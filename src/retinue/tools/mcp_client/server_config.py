"""The configuration of a server, read from the files of many programs.

A file of a project says which programs to start. Until its user has said that it is trusted, its
servers are listed and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from retinue.core.ids import digest
from retinue.core.secret_values import secrets_of_server
from retinue.core.values import Value
from retinue.formats.safe_text import reveal
from retinue.sandbox.regular_file import read_small

Kind = Literal["stdio", "http", "sse"]
MAX_FILE = 1 << 20


class ServerConfigSource(Value):
    """Where a server was configured. An empty `file` is the command line or a program."""

    file: str = ""
    dialect: str = "retinue"


class OAuthSettings(Value):
    """How to log in to a server that wants it: who we are to its login server (else we register),
    what to ask for, the port that the browser is sent back to (else any), and the only login server
    that may be used (else the one that the server names)."""

    client_id: str = ""
    client_secret: str = ""
    scope: str = ""
    port: int = 0
    issuer: str = ""
    is_off: bool = False


class ServerConfig(Value):
    """One server. `include` of None takes all its tools; patterns are those of a shell, `*` and
    `?`. `aliases` are its tools' names and what the model shall call them. `trust` believes what
    the server says about the effects of its tools. `approval` is for the permission check.
    `written` is a digest of the configuration before variables were filled in: when it changes, the
    server has to be approved again."""

    name: str
    kind: Kind = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    oauth: OAuthSettings = OAuthSettings()
    start_seconds: float = 30.0
    call_seconds: float = 60.0
    disabled: bool = False
    required: bool = False
    trust: bool = False
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    aliases: dict[str, str] = msgspec.field(default_factory=dict)
    approval: str = ""
    is_parallel: bool = True
    source: ServerConfigSource = ServerConfigSource()
    written: str = ""

    def __repr__(self) -> str:
        """Without arguments, variables, headers and the query of an address: any of them may hold a
        secret."""
        what = self.command if self.kind == "stdio" else self.url.partition("?")[0]
        return (
            f"ServerConfig({self.name!r}, {self.kind}, {what!r}, "
            f"source={self.source.file or 'given'!r})"
        )

    @property
    def identity(self) -> str:
        return self.written or digest(self.kind, self.command, *self.args, self.cwd, self.url)

    @property
    def secrets(self) -> dict[str, str]:
        """What its variables, headers, address and arguments hold of secrets, by name."""
        secrets = secrets_of_server(
            self.name, env=self.env, headers=self.headers, url=self.url, args=self.args
        )
        secret = self.oauth.client_secret
        return {**secrets, f"{self.name} client secret": secret} if secret else secrets

    @property
    def may_log_in(self) -> bool:
        """Whether tokens of a login are sent. A configured token is used as it is."""
        is_given = any(name.lower() == "authorization" for name in self.headers)
        return self.kind != "stdio" and not is_given and not self.oauth.is_off


ComplaintKind = Literal[
    "unreadable", "wrong", "unset", "unknown_key", "untrusted", "shadowed", "doubtful"
]


class ServerComplaint(Value):
    """Something about a configuration that its writer should know. One that is `fatal` cost the
    server, or the file."""

    text: str
    file: str = ""
    server: str = ""
    field: str = ""
    kind: ComplaintKind = "wrong"
    fatal: bool = True

    def __str__(self) -> str:
        where = [self.file, f"server {self.server!r}" if self.server else "", self.field]
        return ": ".join([*filter(None, where), self.text])


Given = Path | str | Mapping[str, Any]


def read_servers(
    files_or_json: Iterable[Given],
    environ: Mapping[str, str],
    *,
    trusted: Callable[[Path], bool] = lambda _: True,
    inputs: Mapping[str, str] | None = None,
) -> tuple[list[ServerConfig], list[ServerComplaint]]:
    """All servers of all the sources, the first that names one wins; and what was wrong. A path,
    JSON as a text, or the parsed object itself; what was not read from a file needs no trust.
    `inputs` are the values for `${input:id}`."""
    from retinue.tools.mcp_client.config_dialects import translate

    servers: dict[str, ServerConfig] = {}
    complaints: list[ServerComplaint] = []
    for source_value in files_or_json:
        path = _path(source_value)
        try:
            tree, dialect = _load(source_value, path)
        except (OSError, ValueError) as error:
            complaints.append(
                ServerComplaint(text=_reason(error), file=str(path or ""), kind="unreadable")
            )
            continue
        source = ServerConfigSource(file=str(path or ""), dialect=dialect)
        if path is not None and not trusted(path):
            complaints += _untrusted(tree, source)
            continue
        configs, wrong = translate(tree, source, environ, inputs or {})
        complaints += wrong
        for server in configs:
            if server.name in servers:
                before = servers[server.name].source.file or "an earlier source"
                text = f"not used, because {before} has a server with this name"
                where = {"file": source.file, "server": server.name}
                complaints.append(ServerComplaint(text=text, kind="shadowed", fatal=False, **where))
            else:
                servers[server.name] = server
    return list(servers.values()), complaints


def _path(source: Given) -> Path | None:
    if isinstance(source, Path):
        return source
    return Path(source) if isinstance(source, str) and not source.lstrip().startswith("{") else None


def _load(source: Given, path: Path | None) -> tuple[dict[str, Any], str]:
    from retinue.tools.mcp_client.config_dialects import dialect_of, parse

    if isinstance(source, Mapping):
        tree: Any = dict(source)
    elif path is None:
        tree = parse(str(source), is_toml=False)
    else:
        tree = parse(_text(path), is_toml=path.suffix == ".toml")
    if not isinstance(tree, dict):
        raise ValueError("expected an object with the key mcpServers")
    return tree, dialect_of(tree, path)


def _text(path: Path) -> str:
    """A regular file of at most a mebibyte: opening anything else could block."""
    return read_small(path, MAX_FILE).decode("utf-8-sig")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"the file cannot be read ({error.strerror}); its servers are ignored"
    if isinstance(error, UnicodeDecodeError):
        return "the file is not UTF-8; its servers are ignored"
    return f"{error}; its servers are ignored"


def _untrusted(tree: Mapping[str, Any], source: ServerConfigSource) -> Sequence[ServerComplaint]:
    from retinue.tools.mcp_client.config_dialects import entries

    text = (
        "not started, because the file is not trusted; review what it would start, then "
        "trust the file"
    )
    servers = entries(tree, source)[0]
    return [
        ServerComplaint(
            text=text, file=source.file, server=reveal(n, keep="")[:100], kind="untrusted"
        )
        for n in servers
    ]
