"""The formats of other programs, translated into `ServerConfig`: JSON with `mcpServers` or
`servers`, TOML with `mcp_servers`. What is not known is reported and left out; what is of the wrong
type costs that server alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from retinue.core.ids import digest
from retinue.formats.json_comments import without_comments
from retinue.formats.safe_text import reveal
from retinue.formats.toml_text import load
from retinue.tools.mcp_client.server_config import (
    ComplaintKind,
    Kind,
    ServerComplaint,
    ServerConfig,
    ServerConfigSource,
)

KINDS: dict[str, Kind] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
ROOTS = {"vscode": "servers", "codex": "mcp_servers"}
VARIABLE = re.compile(r"\$\{(?:(env|input):)?([A-Za-z_][A-Za-z0-9_.-]*)(?::-([^}]*))?\}")
TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
ALIAS = re.compile(r"[A-Za-z0-9_-]{1,64}")


DEFINING = (
    *("command", "args", "env", "env_vars", "cwd", "url", "httpUrl", "headers"),
    *("http_headers", "env_http_headers", "bearer_token_env_var", "trust"),
)
"""What decides which program runs, what it is given, and whether it is believed."""


class Wrong(Exception):
    def __init__(self, field: str, text: str, kind: ComplaintKind = "wrong") -> None:
        super().__init__(text)
        self.field, self.kind = field, kind


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
            f"it is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The same key twice would let a reader see one value and this program another."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(k for n, (k, _) in enumerate(pairs) if k in dict(pairs[:n]))
        raise ValueError(
            f"the key {reveal(twice, keep='')[:100]!r} stands twice in the same object"
        )
    return found


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
    found = tree.get(root)
    if isinstance(found, dict):
        return found, []
    if found is None and source.dialect in ("gemini", "codex"):  # they hold other settings too
        return {}, []
    text = f"it has no {root}" if found is None else f"it must be an object, not {_type(found)}"
    return {}, [ServerComplaint(text=text, file=source.file, field=root)]


def translate(
    tree: Mapping[str, Any],
    source: ServerConfigSource,
    environ: Mapping[str, str],
    inputs: Mapping[str, str],
) -> tuple[list[ServerConfig], list[ServerComplaint]]:
    found, complaints = entries(tree, source)
    servers = []
    asked = {
        i["id"]: i
        for i in _list(tree.get("inputs"))
        if isinstance(i, dict) and isinstance(i.get("id"), str)
    }
    for name, entry in found.items():
        file, shown = source.file, reveal(name, keep="")[:100]
        try:
            reader = ServerEntry(name, entry, source, Expander(environ, inputs, asked, source))
            server = reader.codex() if source.dialect == "codex" else reader.json()
        except Wrong as error:
            complaints.append(
                ServerComplaint(
                    text=str(error), field=error.field, kind=error.kind, file=file, server=shown
                )
            )
            continue
        complaints += [
            ServerComplaint(text=t, field=f, kind=k, fatal=False, file=file, server=shown)
            for f, t, k in reader.notes
        ]
        servers.append(server)
    return servers, complaints


@dataclass(frozen=True, slots=True)
class Expander:
    """`${VAR}` and `${VAR:-default}`; in files of VS Code also `${env:VAR}`, `${input:id}` and
    `${workspaceFolder}`. Anything else stays as it is: it may be meant for a shell."""

    environ: Mapping[str, str]
    inputs: Mapping[str, str]
    asked: Mapping[str, Any]
    source: ServerConfigSource

    def __call__(self, text: str, field: str) -> str:
        return VARIABLE.sub(lambda m: self._value(m, field), text)

    def _value(self, match: re.Match[str], field: str) -> str:
        prefix, name, default = match.groups()
        is_vscode = self.source.dialect == "vscode"
        if (prefix and not is_vscode) or (("." in name or "-" in name) and prefix != "input"):
            return match[0]
        if prefix == "input":
            if name not in self.inputs:
                about = self.asked.get(name, {}).get("description")
                said = f" ({reveal(about, keep='')[:200]})" if isinstance(about, str) else ""
                raise Wrong(
                    field,
                    f"it needs the input {name!r}{said}, and nobody can be asked for it here",
                    "unset",
                )
            return self.inputs[name]
        if is_vscode and name == "workspaceFolder" and self.source.file:
            folder = Path(self.source.file).absolute().parent
            return str(folder.parent if folder.name == ".vscode" else folder)
        value = self.environ.get(name) or default
        if value is None and name in self.environ:
            return ""
        if value is None:
            raise Wrong(
                field,
                f"the variable {name} is not set; set it, or write a default: ${{{name}:-...}}",
                "unset",
            )
        return value


class ServerEntry:
    """One server of a file, field by field. `notes` are (field, text, kind)."""

    def __init__(self, name: str, entry: Any, source: ServerConfigSource, expand: Expander) -> None:
        if not isinstance(entry, dict):
            raise Wrong("", f"it must be an object, not {_type(entry)}")
        if not name.strip() or len(name) > 128:
            raise Wrong("", "its name must have 1 to 128 characters")
        self._name, self._entry, self._source, self._expand = name, dict(entry), source, expand
        self._known: set[str] = set()
        self.notes: list[tuple[str, str, ComplaintKind]] = []

    def json(self) -> ServerConfig:
        """All the dialects in JSON at once; their keys do not contradict each other, except for a
        bare `url`."""
        kind, url, url_field = self._kind()
        timeout = self._number("timeout")
        if timeout is not None and timeout < 1_000:
            self.notes.append(
                ("timeout", f"it is in milliseconds; {timeout:g} is taken as seconds", "doubtful")
            )
        include, exclude = self._texts("includeTools", None), self._texts("excludeTools", ())
        tools = self._texts("tools", None)
        include = tools if include is None else include
        self._text("description")
        return self._made(
            kind,
            url=self._address(url, url_field),
            headers=self._headers("headers"),
            call=None if timeout is None else timeout if timeout < 1_000 else timeout / 1_000,
            disabled=self._flag("disabled", False) or not self._flag("enabled", True),
            trust=self._flag("trust", False),
            include=None if include == ("*",) else include,
            exclude=exclude or (),
        )

    def codex(self) -> ServerConfig:
        url = self._text("url")
        headers = self._headers("http_headers")
        for header, name in self._texts_by_name("env_http_headers", TOKEN).items():
            headers[header] = self._variable(name, f"env_http_headers.{header}")
        if bearer := self._text("bearer_token_env_var"):
            headers["Authorization"] = f"Bearer {self._variable(bearer, 'bearer_token_env_var')}"
        start, start_ms = self._number("startup_timeout_sec"), self._number("startup_timeout_ms")
        return self._made(
            "http" if url else "stdio",
            url=self._address(url, "url"),
            headers=headers,
            start=start if start is not None else None if start_ms is None else start_ms / 1_000,
            call=self._number("tool_timeout_sec"),
            disabled=not self._flag("enabled", True),
            include=self._texts("enabled_tools", None),
            exclude=self._texts("disabled_tools", ()) or (),
            approval=self._text("default_tools_approval_mode"),
            is_parallel=self._flag("supports_parallel_tool_calls", True),
        )

    def _made(
        self,
        kind: Kind,
        *,
        url: str,
        headers: dict[str, str],
        start: float | None = None,
        call: float | None = None,
        **more: Any,
    ) -> ServerConfig:
        command, args = self._text("command"), self._texts("args", ()) or ()
        if kind == "stdio" and not command:
            raise Wrong(
                "command", "a server that is a process needs a command; one over HTTP needs a url"
            )
        env = {n: self._expand.environ[n] for n in self._env_names() if n in self._expand.environ}
        env |= {k: self._expand(v, f"env.{k}") for k, v in self._texts_by_name("env", None).items()}
        written = digest(
            kind,
            json.dumps({k: v for k, v in self._entry.items() if k in DEFINING}, sort_keys=True),
        )
        server = ServerConfig(
            name=self._name,
            kind=kind,
            command=self._expand(command, "command"),
            args=tuple(self._expand(a, f"args[{n}]") for n, a in enumerate(args)),
            env=env,
            cwd=self._text("cwd"),
            url=url,
            headers=headers,
            start_seconds=30.0 if start is None else start,
            call_seconds=60.0 if call is None else call,
            required=self._flag("required", False),
            aliases=self._texts_by_name("aliases", ALIAS, is_value=True),
            source=self._source,
            written=written,
            **more,
        )
        if (
            headers
            and url.startswith("http://")
            and urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1")
        ):
            self.notes.append(
                ("url", "headers go over the network in the clear; use https", "doubtful")
            )
        for key in self._entry.keys() - self._known:
            self.notes.append(
                (
                    reveal(key, keep="")[:100],
                    "this key is not known and was left out",
                    "unknown_key",
                )
            )
        return server

    def _kind(self) -> tuple[Kind, str, str]:
        named, url, http_url = self._text("type"), self._text("url"), self._text("httpUrl")
        if named and named not in KINDS:
            raise Wrong(
                "type",
                f"{reveal(named, keep='')[:60]!r} is not known; there is stdio, http and sse",
            )
        if http_url:
            return "http", http_url, "httpUrl"
        bare: Kind = "stdio" if not url else "sse" if self._source.dialect == "gemini" else "http"
        return KINDS.get(named, bare), url, "url"

    def _address(self, url: str, field: str) -> str:
        if not url:
            if self._entry.get("type") in KINDS and KINDS[self._entry["type"]] != "stdio":
                raise Wrong("url", "a server over HTTP needs a url")
            return ""
        found = self._expand(url, field)
        try:
            parts = urlsplit(found)
            is_right = (
                parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
            )
        except ValueError:
            is_right = False
        if not is_right or re.search(r"[\s\x00-\x1f]", found):
            raise Wrong(field, "it must be an address that begins with http:// or https://")
        if parts.username or parts.password:
            raise Wrong(
                field,
                "a name and password in the address would end up in logs; give them as a header",
            )
        return found

    def _headers(self, field: str) -> dict[str, str]:
        found = {
            k: self._expand(v, f"{field}.{k}") for k, v in self._texts_by_name(field, TOKEN).items()
        }
        for key, value in found.items():
            if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
                raise Wrong(
                    f"{field}.{key}", "a header cannot hold control characters or line ends"
                )
        return found

    def _variable(self, name: str, field: str) -> str:
        return self._expand(f"${{{name}}}", field)

    def _env_names(self) -> Iterator[str]:
        """`env_vars`: names, or objects with a name."""
        for n, item in enumerate(_list(self._get("env_vars", list, ()))):
            name = item.get("name") if isinstance(item, dict) else item
            if not isinstance(name, str):
                raise Wrong(
                    f"env_vars[{n}]", f"it must be the name of a variable, not {_type(name)}"
                )
            yield name

    def _get(self, field: str, type_: type | tuple[type, ...], default: Any) -> Any:
        self._known.add(field)
        value = self._entry.get(field)
        if value is None:
            return default
        is_right = isinstance(value, type_) and (type_ is bool or not isinstance(value, bool))
        if not is_right:
            want = {str: "a text", list: "a list", dict: "an object", bool: "true or false"}
            named = want[type_] if isinstance(type_, type) else "a number"
            raise Wrong(field, f"it must be {named}, not {_type(value)}")
        return value

    def _text(self, field: str) -> str:
        text: str = self._get(field, str, "")
        if "\0" in text:
            raise Wrong(field, "it holds a NUL character")
        return text

    def _flag(self, field: str, default: bool) -> bool:
        return bool(self._get(field, bool, default))

    def _number(self, field: str) -> float | None:
        value = self._get(field, (int, float), None)
        if value is not None and not 0 < value < 1e9:
            raise Wrong(field, "it must be more than 0")
        return None if value is None else float(value)

    def _texts(self, field: str, default: tuple[str, ...] | None) -> tuple[str, ...] | None:
        found = self._get(field, list, None)
        for n, item in enumerate(found or ()):
            if not isinstance(item, str) or "\0" in item:
                raise Wrong(f"{field}[{n}]", f"it must be a text, not {_type(item)}")
        return default if found is None else tuple(found)

    def _texts_by_name(
        self, field: str, names: re.Pattern[str] | None, is_value: bool = False
    ) -> dict[str, str]:
        found: dict[str, Any] = self._get(field, dict, {})
        for key, item in found.items():
            if not isinstance(item, str) or "\0" in item:
                raise Wrong(f"{field}.{key}", f"it must be a text, not {_type(item)}")
            checked = item if is_value else key
            if (
                (names and not names.fullmatch(checked))
                or not key
                or "\0" in key
                or (names is None and "=" in key)
            ):
                raise Wrong(
                    field, f"{reveal(checked, keep='')[:60]!r} is not a name that can be used here"
                )
        return dict(found)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _type(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        type(None): "nothing",
    }
    return names.get(type(value), "a number")
