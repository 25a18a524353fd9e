"""Reads YAML into plain values with their lines, within size limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from retinue.agent_files.agent_spec import FileComplaint, Severity
from retinue.formats.safe_text import clean

MAX_DEPTH = 32
MAX_VALUES = 20_000
MAX_COMPLAINTS = 50
Lines = dict[tuple[str, ...], int]
Hint = str | Callable[[], str]


@dataclass
class AgentDocument:
    """What a file holds. `lines` has the line of each key, by its path from the top. `broken`: its
    keys could not be read, so that nothing may be concluded from a key that is missing."""

    path: str
    data: dict[str, Any] = field(default_factory=dict)
    lines: Lines = field(default_factory=dict)
    body: str = ""
    has_head: bool = False
    broken: bool = False
    complaints: list[FileComplaint] = field(default_factory=list)

    def complain(
        self, message: str, line: int = 0, severity: Severity = "warning", hint: Hint = ""
    ) -> None:
        """A hint that takes time to find is a function, which is not asked once there are
        complaints enough."""
        is_full = len(self.complaints) >= MAX_COMPLAINTS
        if is_full and severity != "error":
            return
        if not isinstance(hint, str):
            hint = "" if is_full else hint()
        advice = clean(hint)
        complaint = FileComplaint(
            path=self.path, line=line, severity=severity, message=clean(message)[:500], hint=advice
        )
        if is_full:  # that there is an error must not be lost
            self.complaints[-1] = complaint
        elif complaint not in self.complaints:
            self.complaints.append(complaint)

    def fail(self, message: str, line: int = 0, hint: str = "") -> None:
        self.broken = True
        self.complain(message, line, "error", hint)


class TooMuch(Exception):
    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass
class _Open:
    """A list or mapping that is being read; for a mapping, `key` waits for its value."""

    value: Any
    path: tuple[str, ...]
    start: int
    anchor: str | None
    key: str | None = None
    key_line: int = 0
    seen: dict[str, int] = field(default_factory=dict)


class YamlBuilder:
    """Builds values from the parser's events, by hand: no recursion, no constructors of foreign
    types, and every alias counts as much as its value."""

    def __init__(self, out: AgentDocument, first: int) -> None:
        import yaml
        from yaml.constructor import SafeConstructor
        from yaml.resolver import Resolver

        self.yaml, self.out, self.first = yaml, out, first
        self.resolve: Any = Resolver().resolve
        self.constructor: Any = SafeConstructor()
        self.n_values = 0
        self.sizes: dict[str, int] = {}
        self.anchors: dict[str, Any] = {}
        self.stack: list[_Open] = []
        self.result: Any = None
        self.n_documents = 0

    def build(self, text: str) -> Any:
        loader = getattr(self.yaml, "CSafeLoader", self.yaml.SafeLoader)
        for event in self.yaml.parse(text, Loader=loader):
            self._take(event, event.start_mark.line + self.first)
        return self.result

    def _take(self, event: Any, line: int) -> None:
        events = self.yaml.events
        if isinstance(event, events.DocumentStartEvent):
            self.n_documents += 1
            if self.n_documents > 1:
                raise TooMuch("a second document starts; only one is read", line)
        elif isinstance(event, events.ScalarEvent):
            self._count(1, line)
            value = self._scalar(event, line)
            if event.anchor:
                self.anchors[event.anchor], self.sizes[event.anchor] = value, 1
            self._put(value, line)
        elif isinstance(event, events.AliasEvent):
            if event.anchor not in self.sizes:
                raise TooMuch(f"the alias *{event.anchor} has no anchor before it", line)
            self._count(self.sizes[event.anchor], line)
            self._put(self.anchors[event.anchor], line)
        elif isinstance(event, events.SequenceStartEvent | events.MappingStartEvent):
            self._count(1, line)
            if len(self.stack) >= MAX_DEPTH:
                raise TooMuch(f"nested more than {MAX_DEPTH} levels deep", line)
            if event.tag and not event.tag.startswith("tag:yaml.org,2002:"):
                self.out.complain(f"the tag {event.tag} is not supported", line)
            value = [] if isinstance(event, events.SequenceStartEvent) else {}
            self.stack.append(_Open(value, self._path(), self.n_values - 1, event.anchor))
        elif isinstance(event, events.SequenceEndEvent | events.MappingEndEvent):
            frame = self.stack.pop()
            if frame.anchor:
                self.anchors[frame.anchor], self.sizes[frame.anchor] = (
                    frame.value,
                    self.n_values - frame.start,
                )
            self._put(frame.value, line)

    def _count(self, n: int, line: int) -> None:
        self.n_values += n
        if self.n_values > MAX_VALUES:
            raise TooMuch(f"more than {MAX_VALUES} values, including those of aliases", line)

    def _path(self) -> tuple[str, ...]:
        if not self.stack:
            return ()
        top = self.stack[-1]
        return top.path if top.key is None else (*top.path, top.key)

    def _put(self, value: Any, line: int) -> None:
        if not self.stack:
            self.result = value
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is None:
            top.key, top.key_line = self._key(value, line), line
        else:
            self._put_pair(top, value)

    def _put_pair(self, top: _Open, value: Any) -> None:
        key, line = str(top.key), top.key_line
        top.key = None
        if key == "<<" and isinstance(value, dict):
            top.value.update({k: v for k, v in value.items() if k not in top.value})
            return
        if key in top.seen:
            self.out.complain(
                f"duplicate key {key[:80]!r}, first on line {top.seen[key]}", line, "error"
            )
        top.seen[key] = line
        self.out.lines.setdefault((*top.path, key), line)
        top.value[key] = value

    def _key(self, value: Any, line: int) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, list | dict):
            self.out.complain("a list or a mapping cannot be a key", line)
        return str(value)[:200]

    def _scalar(self, event: Any, line: int) -> Any:
        tag = event.tag
        if tag in (None, "!"):
            tag = self.resolve(self.yaml.ScalarNode, event.value, event.implicit)
        kind = tag.removeprefix("tag:yaml.org,2002:")
        if kind in ("str", "timestamp", "merge", "value"):
            return clean(event.value)
        if kind == "null":
            return None
        if kind in ("int", "float") and (len(event.value) > 40 or ":" in event.value):
            return clean(event.value)
        node = self.yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark)
        try:
            if kind == "bool":
                return self.constructor.construct_yaml_bool(node)
            if kind == "int":
                whole = self.constructor.construct_yaml_int(node)
                return whole if abs(whole) < 1 << 53 else event.value
            if kind == "float":
                number = self.constructor.construct_yaml_float(node)
                return number if math.isfinite(number) else event.value
        except (ValueError, KeyError, OverflowError, IndexError):
            return clean(event.value)
        self.out.complain(f"the tag {tag} is not supported", line)
        return clean(event.value)
