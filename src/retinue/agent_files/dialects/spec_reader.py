"""Shared by the dialects: names, tools, MCP servers, and building a spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from retinue.agent_files.agent_spec import AgentSpec, DefinitionSource, Dialect, Scope
from retinue.agent_files.fields import Fields
from retinue.agent_files.tool_alias_table import AGENT, SHELL
from retinue.agent_files.tool_aliases import Complain, resolve, written
from retinue.agent_files.yaml_builder import AgentDocument

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_/-]{0,63}")
PATHS = ("read", "list", "search", "find", "symbols", "edit", "write")
"""Tools whose patterns are about paths."""
_NOT_NAME = re.compile(r"[^A-Za-z0-9_/-]+")

Include = Callable[[str], str]


def no_include(path: str) -> str:
    raise OSError("this file cannot include others")


@dataclass
class SpecReader:
    """A document on its way to be a spec. `stem` is the name that its path gives it; `include`
    reads another file for it, or raises `OSError` with the reason; `known` are further tools of
    this program."""

    document: AgentDocument
    dialect: Dialect
    scope: Scope = "project"
    stem: str = ""
    key: str = ""
    known: Sequence[str] = ()
    include: Include = no_include
    data: Mapping[str, Any] | None = None
    at: tuple[str, ...] = ()
    body: str | None = None
    fields: Fields = field(init=False)

    def __post_init__(self) -> None:
        self.fields = Fields(self.document, self.data, self.at)

    @property
    def instructions(self) -> str:
        return self.document.body if self.body is None else self.body

    def name(self, text: str) -> str:
        """The name that a file gives, or that of the file; what cannot be a name is made one."""
        stem = text or self.stem
        if NAME.fullmatch(stem):
            return stem
        plain = _NOT_NAME.sub("-", stem).strip("-_/").lower()[:64].strip("-_/")
        if not plain:
            self.fields.complain(
                "name",
                f"{stem[:60]!r} is not a valid name: use letters, digits, - and _",
                "error",
            )
            return "unnamed"
        self.fields.complain(
            "name", f"{stem[:60]!r} is not a valid name; {plain!r} is used", "warning"
        )
        return plain

    def described(self, *, needed: bool = True) -> str:
        description = self.fields.text("description")
        if needed and not description:
            self.fields.complain(
                "description",
                "description is missing, so models cannot tell when to use this agent",
            )
        return description

    def spec(self, known_keys: Sequence[str], quiet: Sequence[str], **values: Any) -> AgentSpec:
        """The spec, with every key that was not read in `extra`."""
        extra = self.fields.rest(known_keys, quiet)
        line = self.document.lines.get(self.at, 1)
        source = DefinitionSource(
            path=self.document.path, dialect=self.dialect, scope=self.scope, key=self.key, line=line
        )
        return AgentSpec(
            source=source, extra=extra, complaints=tuple(self.document.complaints), **values
        )


def tool_values(
    reading: SpecReader, allow: Sequence[str], deny: Sequence[str] = (), servers: Sequence[str] = ()
) -> dict[str, Any]:
    """The fields of a spec that its lists of tools decide."""
    fields = reading.fields
    out: dict[str, Any] = {"tools": None, "deny": (), "rules": (), "can_spawn": None}

    def complaining(key: str) -> Complain:
        return lambda message, severity, hint: fields.complain(key, message, severity, hint)

    entries = fields.names(*allow)
    if entries is not None:
        key = fields.raw(*allow)[0]
        tools = resolve(
            entries, reading.dialect, complaining(key), servers=servers, known=reading.known
        )
        out["rules"] = tuple(
            written("allow", tool, _path(tool, pattern)) for tool, pattern in tools.patterns
        )
        out |= {"tools": None if tools.every else tools.names, "can_spawn": tools.spawn}
        if not entries:
            fields.complain(key, f"{key} is empty: this agent has no tools", "note")
        elif not tools.every and not tools.names:
            fields.complain(
                key,
                f"{key} resolves to no tool: none of {', '.join(entries)[:120]} is a tool here",
                "error",
            )
    denied = fields.names(*deny) if deny else None
    if denied:
        key = fields.raw(*deny)[0]
        tools = resolve(
            denied, reading.dialect, complaining(key), servers=servers, known=reading.known
        )
        if tools.every:
            fields.complain(key, f"{key} removes every tool", "error")
        limited = {tool for tool, _ in tools.patterns}
        whole = tuple(
            n for n in tools.names if n not in limited and not (tools.spawn and n == AGENT)
        )
        if "shell" in limited:
            whole = tuple(n for n in whole if n not in SHELL)
        out["deny"] = whole
        patterns = (*tools.patterns, *((AGENT, name) for name in tools.spawn or ()))
        out["rules"] += tuple(
            written("deny", tool, _path(tool, pattern)) for tool, pattern in patterns
        )
        drop_denied(out, fields, key)
    return out


def _path(tool: str, pattern: str) -> str:
    """In patterns of paths one slash in front is the project's root, two are the file system's."""
    return pattern[1:] if tool in PATHS and pattern.startswith("/") else pattern


def drop_denied(out: dict[str, Any], fields: Fields, key: str) -> None:
    """Deny wins; a list of which nothing is left is an error."""
    if out["tools"]:
        rest = tuple(t for t in out["tools"] if t not in out["deny"])
        if not rest:
            fields.complain(key, f"{key} removes all listed tools", "error")
        out["tools"] = rest


def server_values(fields: Fields, *keys: str) -> dict[str, dict[str, Any]]:
    """MCP servers: names of those that are known elsewhere, or whole definitions, as a list or by
    name."""
    key, value = fields.raw(*keys)
    out: dict[str, dict[str, Any]] = {}
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, dict):
        value = [{name: inner} for name, inner in value.items()]
    if value is None:
        return out
    if not isinstance(value, list):
        fields.wrong(key, "names of servers, or servers by name", value)
        return out
    for item in value:
        if isinstance(item, str):
            out[item] = {}
        elif (
            isinstance(item, dict)
            and len(item) == 1
            and all(isinstance(v, dict) for v in item.values())
        ):
            out |= item
        else:
            fields.complain(
                key,
                f"{key} contains something that is neither a name nor one server; it is ignored",
            )
    return out
