"""HTTP headers that stateless protocol versions require, so that proxies need not read bodies."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

MARK = "x-mcp-header"
MAX_DEPTH = 16

_PLAIN = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_PACKED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")


def header_value(text: str) -> str:
    """As it is when a header can carry it, else packed in base64."""
    if not text or (_PLAIN.fullmatch(text) and not _PACKED.fullmatch(text)):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def marked(schema: Any) -> dict[tuple[str, ...], str]:
    """Which arguments a tool's schema wants in which header: the path of properties to each, and
    the header's name."""
    headers = {
        path: str(field[MARK]) for path, field in _walk(schema, ()) if not _field_problem(field)
    }
    n = Counter(name.lower() for name in headers.values())
    return {path: name for path, name in headers.items() if n[name.lower()] == 1}


def header_problem(schema: Any) -> str:
    """What is wrong with the headers that a schema wants, "" if nothing is. A tool that wants what
    no header can carry must not be called over HTTP."""
    fields = [field for _, field in _walk(schema, ())]
    problems = [problem for field in fields if (problem := _field_problem(field))]
    names = Counter(str(field[MARK]).lower() for field in fields)
    if not problems and any(n > 1 for n in names.values()):
        problems = ["two arguments have the same header"]
    return f"{MARK}: {problems[0]}" if problems else ""


def _field_problem(field: Mapping[str, Any]) -> str:
    mark = field[MARK]
    if not isinstance(mark, str) or not _TOKEN.fullmatch(mark):
        return "the name of a header has other characters"
    is_plain = field.get("type") in ("string", "integer", "boolean")
    return "" if is_plain else "only a string, an integer or a boolean can be in a header"


def _walk(
    schema: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The arguments that have a mark."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) >= MAX_DEPTH:
        return
    for name, inner in properties.items():
        if isinstance(inner, dict):
            if MARK in inner:
                yield (*path, name), inner
            yield from _walk(inner, (*path, name))


def argument_headers(
    where: Mapping[tuple[str, ...], str], args: Mapping[str, Any]
) -> dict[str, str]:
    headers = {}
    for path, name in where.items():
        value: Any = args
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            headers[f"Mcp-Param-{name}"] = "true" if value else "false"
        elif isinstance(value, int | float | str):
            headers[f"Mcp-Param-{name}"] = header_value(str(value))
    return headers
