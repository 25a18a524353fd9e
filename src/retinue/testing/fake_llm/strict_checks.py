"""What every provider refuses: bodies that are not JSON objects, and invalid schemas.

The dialects hold the rules that differ. A tool list is read once and remembered: it is the same in
every turn of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from retinue.core.values import ToolSchema
from retinue.testing.fake_llm.dialect import FakeUnit, decode, encode

NAME = re.compile(r"[a-zA-Z0-9_-]+\Z")
TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


class ParsedTools(NamedTuple):
    """A tool list that was found good."""

    schemas: tuple[ToolSchema, ...]
    unit: FakeUnit
    n_marks: int


class Memory:
    """Tool lists that were read before, by their bytes."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._known: dict[bytes, ParsedTools] = {}

    def tools_if_set(
        self, body: Mapping[str, Any], read: Callable[[Any], tuple[ToolSchema, ...]]
    ) -> ParsedTools | None:
        """The tools of a request; None if it has none, or null."""
        value = body.get("tools")
        return None if value is None else self.tools(value, read)

    def tools(self, value: Any, read: Callable[[Any], tuple[ToolSchema, ...]]) -> ParsedTools:
        """`read` raises what is wrong with the list."""
        text = encode(value)
        parsed = self._known.get(text)
        if parsed is None:
            schemas = read(value)
            n_marks = text.count(b'"cache_control":{')
            plain = encode(schemas)
            unit = FakeUnit(plain, len(plain) if schemas else 0, len(schemas) or 1, n_marks > 0)
            parsed = ParsedTools(schemas, unit, n_marks)
            if len(self._known) >= self._size:
                self._known.clear()
            self._known[text] = parsed
        return parsed


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def json_object(body: bytes) -> dict[str, Any] | str:
    """The body, or what is wrong with it."""
    try:
        value = decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        return str(error)
    return value if isinstance(value, dict) else f"expected an object, got {type(value).__name__}"


def is_count(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def bad_schema(schema: object, at: tuple[str, ...] = ()) -> tuple[tuple[str, ...], str] | None:
    """The first thing in it that is not JSON schema: where, and what."""
    if isinstance(schema, bool):
        return None
    if not isinstance(schema, dict):
        return at, f"{_shown(schema)} is not of type 'object', 'boolean'"
    return _bad_words(schema, at) or _bad_parts(schema, at)


def _bad_words(
    schema: Mapping[str, Any], at: tuple[str, ...]
) -> tuple[tuple[str, ...], str] | None:
    kind = schema.get("type", "object")
    for one in kind if isinstance(kind, list) else [kind]:
        if not isinstance(one, str) or one not in TYPES:
            return at, f"{_shown(one)} is not valid under any of the given schemas"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return (*at, "required"), f"{_shown(required)} is not of type 'array' of strings"
    if len(set(required)) < len(required):
        return (*at, "required"), f"{_shown(required)} has non-unique elements"
    enum = schema.get("enum", [None])
    if not isinstance(enum, list) or not enum:
        return (*at, "enum"), f"{_shown(enum)} is not a non-empty array"
    for word in _NUMBERS:
        if word in schema and not is_number(schema[word]):
            return (*at, word), f"{_shown(schema[word])} is not of type 'number'"
    for word in _COUNTS:
        if word in schema and not is_count(schema[word]):
            return (*at, word), f"{_shown(schema[word])} is not a count"
    return None


def _bad_parts(
    schema: Mapping[str, Any], at: tuple[str, ...]
) -> tuple[tuple[str, ...], str] | None:
    for word in ("properties", "$defs", "definitions", "patternProperties"):
        part = schema.get(word, {})
        if not isinstance(part, dict):
            return (*at, word), f"{_shown(part)} is not of type 'object'"
        for name, value in part.items():
            if bad := bad_schema(value, (*at, word, name)):
                return bad
    for word in _ONE:
        if word in schema and (bad := bad_schema(schema[word], (*at, word))):
            return bad
    for word in _MANY:
        part = schema.get(word, [True])
        if not isinstance(part, list) or not part:
            return (*at, word), f"{_shown(part)} is not a non-empty array"
        for n, value in enumerate(part):
            if bad := bad_schema(value, (*at, word, str(n))):
                return bad
    return None


def _shown(value: object) -> str:
    return encode(value).decode()[:80]
