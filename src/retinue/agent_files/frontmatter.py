"""Reads Markdown with YAML front matter, TOML, and JSON with comments into plain values with the
line of each key. Bounded in size, depth and aliases: whatever the bytes are, the answer is a
document with complaints."""

from __future__ import annotations

import codecs
import math
import re
from datetime import date, datetime, time
from typing import Any

from retinue.agent_files.yaml_builder import MAX_DEPTH, AgentDocument, Lines, TooMuch, YamlBuilder
from retinue.core.arguments import BadArguments, parse
from retinue.formats.json_comments import without_comments
from retinue.formats.safe_text import clean
from retinue.formats.toml_positions import KeyPositions
from retinue.formats.toml_text import BadToml, load

MAX_BYTES = 1 << 20
MAX_HEAD = 1 << 18

_FENCE = re.compile(r"---[ \t]*")
_CLOSE = re.compile(r"(?:---|\.\.\.)[ \t]*")
_JSON_LINE = re.compile(r"line (\d+) column \d+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


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
            ("the front matter that starts here is not closed"),
            start + 1,
            "close it with a line of ---",
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
        out.fail(f"it is {len(text)} characters long; the limit for TOML is {MAX_HEAD}")
        return out
    try:
        out.data = _plain(load(text), 0)
    except BadToml as error:
        out.fail(f"invalid TOML: {error.message[:200]}", error.line)
    except ValueError as error:
        out.fail(f"invalid TOML: {str(error)[:200]}")
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
        out.fail(f"the file is larger than {MAX_BYTES} bytes")
        return ""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        out.fail("the file is UTF-16", 1, "save it as UTF-8")
        return ""
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        out.complain("not valid UTF-8; invalid bytes were replaced", line, hint="save it as UTF-8")
        text = raw.decode("utf-8", "replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if match := _UNPRINTABLE.search(text):
        line = text.count("\n", 0, match.start()) + 1
        out.complain("control characters were removed", line)
        text = _UNPRINTABLE.sub("", text)
    return text


def _read_yaml(text: str, first: int, out: AgentDocument) -> None:
    if len(text) > MAX_HEAD:
        out.fail(f"the front matter is {len(text)} characters long; the limit is {MAX_HEAD}", first)
        return
    try:
        import yaml
    except ImportError:
        out.fail("reading front matter needs the package PyYAML", first, "pip install pyyaml")
        return
    try:
        value = YamlBuilder(out, first).build(text)
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
            f"invalid YAML: {what}",
            line,
            "indent with spaces, not tabs" if tab else _quote_hint(what),
        )
    except (yaml.YAMLError, TooMuch, ValueError, RecursionError) as error:
        out.fail(f"invalid YAML: {str(error)[:200]}", getattr(error, "line", first))
    else:
        if value is None:
            return
        if isinstance(value, dict):
            out.data = value
        else:
            out.fail(f"the front matter must be keys and values, not {kind_of(value)}", first)


def _quote_hint(problem: str) -> str:
    return "put the value in quotes" if "mapping values are not allowed" in problem else ""


def _plain(value: Any, depth: int) -> Any:
    """Values that JSON has: dates become text, numbers are finite."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
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
    """The first line of a key, for keys of the first levels."""
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
