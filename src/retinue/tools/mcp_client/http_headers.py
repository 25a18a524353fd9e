"""What versions without a handshake want repeated in HTTP headers, so that proxies need not read
bodies."""

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
    headers = dict(_walk(schema, ()))
    n = Counter(name.lower() for name in headers.values())
    return {path: name for path, name in headers.items() if n[name.lower()] == 1}


def _walk(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(path) >= MAX_DEPTH:
        return
    for name, inner in properties.items():
        if isinstance(inner, dict):
            mark = inner.get(MARK)
            if (
                isinstance(mark, str)
                and _TOKEN.fullmatch(mark)
                and inner.get("type") in ("string", "integer", "boolean")
            ):
                yield (*path, name), mark
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
