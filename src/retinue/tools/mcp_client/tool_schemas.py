"""Converts a tool's schema into one that every provider accepts: an object at the root, no
references, no unknown keywords.

One schema that a provider refuses costs the whole request, and with it every turn of the run; so
only what is known to be understood is copied, and a tool that cannot be described so is omitted.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from retinue.formats.safe_text import one_line, several_lines
from retinue.tools.mcp_client.protocol import encode

TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
MAX_DEPTH = 24
MAX_NODES = 4_000
MAX_TEXT = 1_024
COPIED = 4
"""How many times the size of the result may be copied on the way to it: references can name one
large part again and again, and what they would grow to is not made first and measured
afterwards."""
KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Unusable(ValueError):
    """Why a tool cannot be offered."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_pattern(value: Any) -> bool:
    """Some providers compile it, in Python, and refuse the whole request when they cannot."""
    if not isinstance(value, str) or len(value) > 1_000:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(value)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


PLAIN: dict[str, Callable[[Any], bool]] = {
    "enum": lambda v: isinstance(v, list) and 0 < len(v) <= 1_000,
    "const": lambda v: True,
    "default": lambda v: True,
    "format": lambda v: isinstance(v, str) and len(v) <= 64,
    "pattern": _is_pattern,
    "minimum": _is_number,
    "maximum": _is_number,
    "exclusiveMinimum": _is_number,
    "exclusiveMaximum": _is_number,
    "multipleOf": lambda v: _is_number(v) and v > 0,
    "minLength": _is_size,
    "maxLength": _is_size,
    "minItems": _is_size,
    "maxItems": _is_size,
    "minProperties": _is_size,
    "maxProperties": _is_size,
    "uniqueItems": lambda v: isinstance(v, bool),
}


def normal(schema: Any, max_bytes: int) -> dict[str, Any]:
    """`Unusable` when a required argument has a name that no provider takes, or the whole is too
    large."""
    copier = _Copier(schema if isinstance(schema, dict) else {}, COPIED * max_bytes)
    root = copier.copy(schema, 0) if isinstance(schema, dict) else {}
    for word in ("allOf", "anyOf", "oneOf"):
        root = _merged(root, word)
    properties = {k: v for k, v in root.get("properties", {}).items() if KEY.fullmatch(k)}
    bad_keys = [k for k in root.get("required", []) if not KEY.fullmatch(k)]
    if bad_keys:
        raise Unusable(
            f"its argument {one_line(bad_keys[0])[:40]!r} has a name that models cannot use"
        )
    required = [k for k in root.get("required", []) if k in properties]
    out: dict[str, Any] = {"type": "object", "properties": properties}
    out |= {"required": required} if required else {}
    out |= {k: root[k] for k in ("description", "additionalProperties") if k in root}
    if len(encode(out)) > max_bytes:
        raise Unusable(f"the schema of its arguments is larger than {max_bytes} bytes")
    return out


def _merged(root: dict[str, Any], word: str) -> dict[str, Any]:
    """Alternatives at the root, which providers refuse, become one object: with `allOf` everything
    is required that any part requires, else only what all of them do."""
    parts = root.pop(word, None)
    if not parts:
        return root
    properties = dict(root.get("properties", {}))
    required = list(root.get("required", []))
    each = [set(p.get("required", [])) for p in parts]
    more = set.union(*each) if word == "allOf" else set.intersection(*each)
    for part in parts:
        for key, value in part.get("properties", {}).items():
            properties.setdefault(key, value)
    return {
        **root,
        "properties": properties,
        "required": [*required, *sorted(more - set(required))],
    }


class _Copier:
    """Copies a schema node by node, following references inside it until they come back to
    themselves. All that is copied counts, however often it is met: a small definition costs no more
    than a small definition may."""

    def __init__(self, root: Mapping[str, Any], max_bytes: int) -> None:
        self._root = root
        self._n = 0
        self._room = max_bytes
        self._open: list[str] = []

    def copy(self, node: Any, depth: int) -> dict[str, Any]:
        self._n += 1
        if not isinstance(node, dict) or depth > MAX_DEPTH:
            return {}
        if self._n > MAX_NODES:
            raise Unusable("the schema of its arguments is too large")
        ref = node.get("$ref")
        if isinstance(ref, str):
            return self._followed(node, ref, depth)
        out: dict[str, Any] = {}
        type_ = _type(node)
        if type_ is not None:
            out["type"] = type_
        for word in ("title", "description"):
            # What is taken out of a text is bounded too: several times what is kept of it is looked
            # at.
            if isinstance(description := node.get(word), str) and (
                text := several_lines(description[: 4 * MAX_TEXT])[:MAX_TEXT]
            ):
                out[word] = text
                self._take(len(text))
        for word, is_right in PLAIN.items():
            if word in node and is_right(node[word]):
                out[word] = node[word]
                self._take(len(encode(node[word])))
        out |= self._inner(node, depth)
        return out

    def _take(self, n_bytes: int) -> None:
        self._room -= n_bytes
        if self._room < 0:
            raise Unusable("the schema of its arguments is too large")

    def _followed(self, node: Mapping[str, Any], ref: str, depth: int) -> dict[str, Any]:
        rest = {k: v for k, v in node.items() if k != "$ref"}
        if ref in self._open:  # it holds itself: anything goes from here on
            return self.copy(rest, depth)
        self._open.append(ref)
        try:
            return self.copy(self._target(ref), depth + 1) | self.copy(rest, depth)
        finally:
            self._open.pop()

    def _target(self, ref: str) -> Any:
        """What a reference inside this schema points to; nothing is fetched from elsewhere."""
        if not ref.startswith("#"):
            return {}
        node: Any = self._root
        for part in ref[1:].strip("/").split("/") if ref not in ("#", "#/") else ():
            node = (
                node.get(part.replace("~1", "/").replace("~0", "~"))
                if isinstance(node, dict)
                else None
            )
        return node if isinstance(node, dict) else {}

    def _inner(self, node: Mapping[str, Any], depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        properties = node.get("properties")
        if isinstance(properties, dict):
            fields = {k: v for k, v in properties.items() if v is not False}
            self._take(sum(map(len, fields)))
            out["properties"] = {k: self.copy(v, depth + 1) for k, v in fields.items()}
            required = node.get("required")
            named = (
                [k for k in required if isinstance(k, str) and k in fields]
                if isinstance(required, list)
                else []
            )
            out |= {"required": list(dict.fromkeys(named))} if named else {}
        if "items" in node:
            items = node["items"]
            out["items"] = self.copy(
                items[0] if isinstance(items, list) and items else items, depth + 1
            )
        elif out.get("type", _type(node)) == "array":
            out["items"] = {}
        for word in ("anyOf", "oneOf", "allOf"):
            if isinstance(node.get(word), list) and (
                parts := [v for v in node[word] if isinstance(v, dict)]
            ):
                out[word] = [self.copy(v, depth + 1) for v in parts]
        extra = node.get("additionalProperties")
        if isinstance(extra, bool):
            out["additionalProperties"] = extra
        elif isinstance(extra, dict):
            out["additionalProperties"] = self.copy(extra, depth + 1)
        return out


def _type(node: Mapping[str, Any]) -> Any:
    """The type that a schema names, or the one that it can only mean."""
    named = node.get("type")
    if isinstance(named, str) and named in TYPES:
        return named
    if isinstance(named, list) and (
        types := [t for t in named if isinstance(t, str) and t in TYPES]
    ):
        return list(dict.fromkeys(types))
    if isinstance(node.get("properties"), dict):
        return "object"
    if "items" in node:
        return "array"
    values = node.get("enum")
    if not isinstance(values, list):
        values = [node["const"]] if "const" in node else []
    kinds = {_kind(v) for v in values or ()}
    return kinds.pop() if len(kinds) == 1 else None


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", dict: "object", list: "array"}
    return names.get(type(value), "null")
