"""One server as a file describes it, in any dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from retinue.core.ids import digest
from retinue.formats.safe_text import reveal
from retinue.tools.mcp_client.config_variables import Expander, Wrong
from retinue.tools.mcp_client.entry_keys import ALIAS, DEFINING, KINDS, TOKEN, list_of, type_name
from retinue.tools.mcp_client.oauth.oauth_entry import oauth_settings
from retinue.tools.mcp_client.server_config import (
    ComplaintKind,
    Kind,
    OAuthSettings,
    ServerConfig,
    ServerConfigSource,
)


class ServerEntry:
    """One server of a file, field by field. `notes` are (field, text, kind)."""

    def __init__(self, name: str, entry: Any, source: ServerConfigSource, expand: Expander) -> None:
        if not isinstance(entry, dict):
            raise Wrong("", f"it must be an object, not {type_name(entry)}")
        if not name.strip() or len(name) > 128:
            raise Wrong("", "the name must have 1 to 128 characters")
        self._name = name
        self._entry = dict(entry)
        self._source = source
        self._expand = expand
        self._known: set[str] = set()
        self.notes: list[tuple[str, str, ComplaintKind]] = []

    def json(self) -> ServerConfig:
        """All the dialects in JSON together; their keys do not contradict each other, except for a
        `url` alone."""
        kind, url, url_field = self._kind()
        timeout = self._number("timeout")
        if timeout is not None and timeout < 1_000:
            self.notes.append(
                (
                    "timeout",
                    f"the value is in milliseconds; {timeout:g} is used as seconds",
                    "doubtful",
                )
            )
        include, exclude = self._texts("includeTools", None), self._texts("excludeTools", ())
        tools = self._texts("tools", None)
        include = tools if include is None else include
        self._text("description")
        return self._made(
            kind,
            url=self._address(url, url_field),
            headers=self._headers("headers"),
            call=timeout if timeout is None or timeout < 1_000 else timeout / 1_000,
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
            start=start_ms / 1_000 if start is None and start_ms is not None else start,
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
            raise Wrong("command", "a local server needs a command; one over HTTP needs a url")
        env = {n: self._expand.environ[n] for n in self._env_names() if n in self._expand.environ}
        env |= {k: self._expand(v, f"env.{k}") for k, v in self._texts_by_name("env", None).items()}
        entry_hash = digest(
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
            oauth=self._oauth(),
            start_seconds=30.0 if start is None else start,
            call_seconds=60.0 if call is None else call,
            required=self._flag("required", False),
            aliases=self._texts_by_name("aliases", ALIAS, is_value=True),
            source=self._source,
            written=entry_hash,
            **more,
        )
        if (
            headers
            and url.startswith("http://")
            and urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1")
        ):
            self.notes.append(("url", "headers are sent unencrypted; use https", "doubtful"))
        for key in self._entry.keys() - self._known:
            self.notes.append(
                (
                    reveal(key, keep="")[:100],
                    "unknown key; it is ignored",
                    "unknown_key",
                )
            )
        return server

    def _oauth(self) -> OAuthSettings:
        if self._entry.get("oauth") is False:
            self._known.add("oauth")
            return OAuthSettings(is_off=True)
        table: dict[str, Any] = self._get("oauth", dict, {})
        settings, notes = oauth_settings(table, self._expand)
        self.notes += [
            (f"oauth.{reveal(key, keep='')[:100]}", "unknown key; it is ignored", "unknown_key")
            for key in notes
        ]
        return settings

    def _kind(self) -> tuple[Kind, str, str]:
        named, url, http_url = self._text("type"), self._text("url"), self._text("httpUrl")
        if named and named not in KINDS:
            raise Wrong(
                "type",
                f"{reveal(named, keep='')[:60]!r} is unknown; known: stdio, http and sse",
            )
        if http_url:
            return "http", http_url, "httpUrl"
        bare: Kind = "stdio"
        if url:
            bare = "sse" if self._source.dialect == "gemini" else "http"
        return KINDS.get(named, bare), url, "url"

    def _address(self, url: str, field: str) -> str:
        if not url:
            if self._entry.get("type") in KINDS and KINDS[self._entry["type"]] != "stdio":
                raise Wrong("url", "a server over HTTP needs a url")
            return ""
        address = self._expand(url, field)
        try:
            parts = urlsplit(address)
            is_right = (
                parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
            )
        except ValueError:
            is_right = False
        if not is_right or re.search(r"[\s\x00-\x1f]", address):
            raise Wrong(field, "expected a URL that starts with http:// or https://")
        if parts.username or parts.password:
            raise Wrong(
                field,
                "a user name and password in the URL would end up in logs; use a header",
            )
        return address

    def _headers(self, field: str) -> dict[str, str]:
        headers = {
            k: self._expand(v, f"{field}.{k}") for k, v in self._texts_by_name(field, TOKEN).items()
        }
        for key, value in headers.items():
            if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
                raise Wrong(
                    f"{field}.{key}", "a header cannot contain control characters or line breaks"
                )
        return headers

    def _variable(self, name: str, field: str) -> str:
        return self._expand(f"${{{name}}}", field)

    def _env_names(self) -> Iterator[str]:
        """`env_vars`: names, or objects with a name."""
        for n, item in enumerate(list_of(self._get("env_vars", list, ()))):
            name = item.get("name") if isinstance(item, dict) else item
            if not isinstance(name, str):
                raise Wrong(
                    f"env_vars[{n}]", f"it must be the name of a variable, not {type_name(name)}"
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
            raise Wrong(field, f"it must be {named}, not {type_name(value)}")
        return value

    def _text(self, field: str) -> str:
        text: str = self._get(field, str, "")
        if "\0" in text:
            raise Wrong(field, "contains a NUL character")
        return text

    def _flag(self, field: str, default: bool) -> bool:
        return bool(self._get(field, bool, default))

    def _number(self, field: str) -> float | None:
        value = self._get(field, (int, float), None)
        if value is not None and not 0 < value < 1e9:
            raise Wrong(field, "must be more than 0")
        return None if value is None else float(value)

    def _texts(self, field: str, default: tuple[str, ...] | None) -> tuple[str, ...] | None:
        texts = self._get(field, list, None)
        for n, item in enumerate(texts or ()):
            if not isinstance(item, str) or "\0" in item:
                raise Wrong(f"{field}[{n}]", f"it must be a text, not {type_name(item)}")
        return default if texts is None else tuple(texts)

    def _texts_by_name(
        self, field: str, names: re.Pattern[str] | None, is_value: bool = False
    ) -> dict[str, str]:
        texts: dict[str, Any] = self._get(field, dict, {})
        for key, item in texts.items():
            if not isinstance(item, str) or "\0" in item:
                raise Wrong(f"{field}.{key}", f"it must be a text, not {type_name(item)}")
            checked = item if is_value else key
            if (
                (names and not names.fullmatch(checked))
                or not key
                or "\0" in key
                or (names is None and "=" in key)
            ):
                raise Wrong(field, f"{reveal(checked, keep='')[:60]!r} is not a valid name here")
        return dict(texts)
