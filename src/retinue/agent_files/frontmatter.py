"""Markdown with YAML before it, TOML, and JSON with comments, as plain values with the line of each
key. Bounded in size, depth and aliases: whatever the bytes are, the answer is a document with
complaints."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Any

from retinue.agent_files.agent_spec import FileComplaint, Severity
from retinue.core.arguments import BadArguments, parse
from retinue.formats.json_comments import without_comments
from retinue.formats.safe_text import clean
from retinue.formats.toml_positions import KeyPositions
from retinue.formats.toml_text import BadToml, load

MAX_BYTES = 1 << 20
MAX_HEAD = 1 << 18
MAX_DEPTH = 32
MAX_VALUES = 20_000
MAX_COMPLAINTS = 50

_FENCE = re.compile(r"---[ \t]*")
_CLOSE = re.compile(r"(?:---|\.\.\.)[ \t]*")
_JSON_LINE = re.compile(r"line (\d+) column \d+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
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
        said = clean(hint if isinstance(hint, str) else "" if is_full else hint())
        made = FileComplaint(
            path=self.path, line=line, severity=severity, message=clean(message)[:500], hint=said
        )
        if is_full:  # that there is an error must not be lost
            self.complaints[-1] = made
        elif made not in self.complaints:
            self.complaints.append(made)

    def fail(self, message: str, line: int = 0, hint: str = "") -> None:
        self.broken = True
        self.complain(message, line, "error", hint)


def read_markdown(raw: bytes, path: str) -> AgentDocument:
    """Front matter between two lines of `---`, and the text behind it. A file without it is all
    text."""
    out = AgentDocument(path)
    text = _decode(raw, out)
    if out.broken:
        return out
    lines = text.split("\n")
    start = next((n for n, line in enumerate(lines) if line.strip()), 0)
    if not _FENCE.fullmatch(lines[start]):
        out.body = text.strip()
        return out
    out.has_head = True
    end = next((n for n in range(start + 1, len(lines)) if _CLOSE.fullmatch(lines[n])), None)
    if end is None:
        out.fail(
            "the front matter that begins here has no end", start + 1, "close it with a line of ---"
        )
        return out
    out.body = "\n".join(lines[end + 1 :]).strip()
    _read_yaml("\n".join(lines[start + 1 : end]), start + 2, out)
    return out


def read_toml(raw: bytes, path: str) -> AgentDocument:
    out = AgentDocument(path, has_head=True)
    text = _decode(raw, out)
    if out.broken:
        return out
    if len(text) > MAX_HEAD:
        out.fail(f"it is {len(text)} characters long; at most {MAX_HEAD} of TOML are read")
        return out
    try:
        out.data = _plain(load(text), 0)
    except BadToml as error:
        out.fail(f"not valid TOML: {error.message[:200]}", error.line)
    except ValueError as error:
        out.fail(f"not valid TOML: {str(error)[:200]}")
    else:
        places = KeyPositions(text)
        out.lines = {
            tuple(part for part in path if isinstance(part, str)): places.line(span.at)
            for path, span in reversed(places.spots.items())
        }
    return out


def read_json(raw: bytes, path: str) -> AgentDocument:
    """JSON, with comments and trailing commas as editors allow them."""
    out = AgentDocument(path, has_head=True)
    text = _decode(raw, out)
    if out.broken:
        return out
    try:
        out.data = parse(without_comments(text))
    except BadArguments as error:
        message = str(error).replace("arguments are", "file is").replace("arguments", "file")
        at = _JSON_LINE.search(message)
        out.fail(message, int(at[1]) if at else 0)
    else:
        out.lines = _json_lines(text, out.data)
    return out


def _decode(raw: bytes, out: AgentDocument) -> str:
    if len(raw) > MAX_BYTES:
        out.fail(f"the file has more than {MAX_BYTES} bytes")
        return ""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        out.fail("the file is UTF-16", 1, "save it as UTF-8")
        return ""
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        out.complain(
            "not valid UTF-8; the bytes that are not were replaced", line, hint="save it as UTF-8"
        )
        text = raw.decode("utf-8", "replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if found := _UNPRINTABLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        out.complain("control characters were taken out", line)
        text = _UNPRINTABLE.sub("", text)
    return text


def _read_yaml(text: str, first: int, out: AgentDocument) -> None:
    if len(text) > MAX_HEAD:
        out.fail(
            f"the front matter is {len(text)} characters long; at most {MAX_HEAD} are read", first
        )
        return
    try:
        import yaml
    except ImportError:
        out.fail("reading front matter needs the package PyYAML", first, "pip install pyyaml")
        return
    try:
        value = _Builder(out, first).build(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + first if mark is not None else first
        what = " ".join(p for p in (error.context, error.problem) if p)
        tab = (
            "\t" in text.split("\n")[mark.line]
            if mark is not None and mark.line <= text.count("\n")
            else False
        )
        out.fail(
            f"not valid YAML: {what}",
            line,
            "indent with spaces, not tabs" if tab else _quote_hint(what),
        )
    except (yaml.YAMLError, _TooMuch, ValueError, RecursionError) as error:
        out.fail(f"not valid YAML: {str(error)[:200]}", getattr(error, "line", first))
    else:
        if value is None:
            return
        if isinstance(value, dict):
            out.data = value
        else:
            out.fail(f"the front matter must be keys and values, not {kind_of(value)}", first)


def _quote_hint(problem: str) -> str:
    return "put the value in quotes" if "mapping values are not allowed" in problem else ""


class _TooMuch(Exception):
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


class _Builder:
    """Builds values from the parser's events, by hand: no recursion, no constructors of foreign
    types, and every alias counts as much as what it stands for."""

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
                raise _TooMuch("a second document begins; one is read", line)
        elif isinstance(event, events.ScalarEvent):
            self._count(1, line)
            value = self._scalar(event, line)
            if event.anchor:
                self.anchors[event.anchor], self.sizes[event.anchor] = value, 1
            self._put(value, line)
        elif isinstance(event, events.AliasEvent):
            if event.anchor not in self.sizes:
                raise _TooMuch(f"the alias *{event.anchor} stands for nothing before it", line)
            self._count(self.sizes[event.anchor], line)
            self._put(self.anchors[event.anchor], line)
        elif isinstance(event, events.SequenceStartEvent | events.MappingStartEvent):
            self._count(1, line)
            if len(self.stack) >= MAX_DEPTH:
                raise _TooMuch(f"nested more than {MAX_DEPTH} deep", line)
            if event.tag and not event.tag.startswith("tag:yaml.org,2002:"):
                self.out.complain(f"the tag {event.tag} means nothing here", line)
            value = [] if isinstance(event, events.SequenceStartEvent) else {}
            self.stack.append(_Open(value, self._path(), self.n_values - 1, event.anchor))
        elif isinstance(event, events.SequenceEndEvent | events.MappingEndEvent):
            done = self.stack.pop()
            if done.anchor:
                self.anchors[done.anchor], self.sizes[done.anchor] = (
                    done.value,
                    self.n_values - done.start,
                )
            self._put(done.value, line)

    def _count(self, n: int, line: int) -> None:
        self.n_values += n
        if self.n_values > MAX_VALUES:
            raise _TooMuch(f"more than {MAX_VALUES} values, counting what aliases stand for", line)

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
                f"the key {key[:80]!r} stands twice, first on line {top.seen[key]}", line, "error"
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
        self.out.complain(f"the tag {tag} means nothing here", line)
        return clean(event.value)


def _plain(value: Any, depth: int) -> Any:
    """Values that JSON has: dates become text, numbers are finite."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        return {clean(k): _plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v, depth + 1) for v in value]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return clean(value) if isinstance(value, str) else value


def _json_lines(text: str, data: dict[str, Any]) -> Lines:
    """The first line on which a key stands, for keys of the first levels."""
    first: dict[str, int] = {}
    for n, line in enumerate(text.split("\n"), 1):
        for key in re.findall(r'"([^"\\]{1,200})"\s*:', line):
            first.setdefault(key, n)
    out: Lines = {}
    todo: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), data)]
    while todo:
        path, value = todo.pop()
        for key, inner in value.items():
            if key in first:
                out[(*path, key)] = first[key]
            if isinstance(inner, dict) and len(path) < 3:
                todo.append(((*path, key), inner))
    return out


def kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "yes or no"
    names = {
        str: "a text",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "a mapping",
        type(None): "nothing",
    }
    return names.get(type(value), type(value).__name__)
