"""Bounds and descriptions in `Annotated`, recognized by attribute: `le` is a maximum, whatever its
class. So pydantic's `Field`, annotated-types and `msgspec.Meta` mean the same, and none of them has
to be there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from retinue.errors import ConfigError

ORDER = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
LENGTHS = {
    "string": ("minLength", "maxLength", "characters"),
    "array": ("minItems", "maxItems", "items"),
    "object": ("minProperties", "maxProperties", "entries"),
}
WORDS = {
    "ge": "at least {}",
    "gt": "greater than {}",
    "le": "at most {}",
    "lt": "less than {}",
    "multiple_of": "a multiple of {}",
    "pattern": "matching the pattern {}",
}
NAMES = (*ORDER, "multiple_of", "min_length", "max_length", "pattern")
NEARLY = 1e-9


class Constraints:
    """What `Annotated` says of one type: `limits` by name, a description, examples."""

    def __init__(self, metadata: Sequence[object]) -> None:
        self.limits: dict[str, Any] = {}
        self.checks: list[Callable[[Any], object]] = []
        self.description = ""
        self.examples: list[Any] = []
        for mark in _flat(metadata):
            self._read(mark)

    def _read(self, mark: object) -> None:
        if isinstance(mark, str):
            self.description = mark
            return
        for name in NAMES:
            if (limit := getattr(mark, name, None)) is not None and not callable(limit):
                self.limits[name] = limit
        if callable(check := getattr(mark, "func", None)):
            self.checks.append(check)
        text = getattr(mark, "description", None) or getattr(mark, "documentation", None)
        if isinstance(text, str):
            self.description = text
        examples = getattr(mark, "examples", None)
        if isinstance(examples, list):
            self.examples = examples

    def describe(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema of the type with what is text here. Raises `ConfigError` for a bound that the
        type cannot have."""
        out = dict(schema)
        sentences = [self.description or out.get("description", "")]
        for name, limit in self.limits.items():
            fitting = [part for part in _parts(out) if _applies(name, part)]
            if not fitting:
                raise ConfigError(f"{name}={limit!r} does not apply to this type")
            for part in fitting:
                key = _keyword(name, part)
                if key and isinstance(limit, (int, float, str)):
                    part[key] = limit
                else:
                    sentences.append(f"Must be {WORDS[name].format(limit)}.")
        if "pattern" in self.limits:
            self.limits["pattern"] = _pattern(self.limits["pattern"])
        if words := " ".join(filter(None, sentences)):
            out["description"] = words
        if self.examples:
            out["examples"] = self.examples
        return out

    def problem(self, value: Any) -> str:
        """What a value has to be and is not, or ""."""
        for name, limit in self.limits.items():
            if value is not None and not _holds(name, value, limit):
                return _words(name, limit, value)
        for check in self.checks:
            if value is not None and not check(value):
                return f"for which {getattr(check, '__name__', 'a check')} is true"
        return ""


def _flat(metadata: Sequence[object]) -> Iterator[object]:
    """The marks with those inside others: a `FieldInfo` keeps a list of them, an `Interval` is
    iterated."""
    for mark in metadata:
        yield mark
        inner = getattr(mark, "metadata", None)
        if isinstance(inner, (list, tuple)):
            yield from _flat(inner)
        if getattr(mark, "__is_annotated_types_grouped_metadata__", False):
            yield from _flat(list(mark))  # type: ignore[call-overload]


def _parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The schema itself, or the branches of a union, each of which may be bounded."""
    if "anyOf" not in schema:
        return [schema]
    schema["anyOf"] = [dict(part) for part in schema["anyOf"]]
    return list(schema["anyOf"])


def _applies(name: str, schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    if name in ORDER:
        return kind in ("integer", "number", None) or "format" in schema
    if name == "multiple_of":
        return kind in ("integer", "number", None)
    return kind == "string" if name == "pattern" else kind in (*LENGTHS, None)


def _keyword(name: str, schema: dict[str, Any]) -> str:
    """What the bound is called in a JSON schema of this type; "" when it has no name there."""
    kind = schema.get("type", "")
    if name in ORDER:
        return ORDER[name] if kind in ("integer", "number") else ""
    if name in ("min_length", "max_length"):
        return LENGTHS[kind][name == "max_length"] if kind in LENGTHS else ""
    return {"multiple_of": "multipleOf", "pattern": "pattern"}[name]


def _pattern(pattern: Any) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ConfigError(f"pattern={pattern!r} is not a regular expression: {error}") from None


def _holds(name: str, value: Any, limit: Any) -> bool:
    match name:
        case "ge":
            return bool(value >= limit)
        case "gt":
            return bool(value > limit)
        case "le":
            return bool(value <= limit)
        case "lt":
            return bool(value < limit)
        case "multiple_of":
            share = float(value) / float(limit)
            return abs(share - round(share)) < NEARLY
        case "pattern":
            return not isinstance(value, str) or limit.search(value) is not None
        case _:
            length = len(value) if hasattr(value, "__len__") else None
            return length is None or (length >= limit if name == "min_length" else length <= limit)


def _words(name: str, limit: Any, value: Any) -> str:
    if name in ("min_length", "max_length"):
        unit = "character" if isinstance(value, str) else "item"
        many = "" if limit == 1 else "s"
        return f"{'at least' if name == 'min_length' else 'at most'} {limit} {unit}{many}"
    limit_text = f"'{limit.pattern}'" if isinstance(limit, re.Pattern) else limit
    return WORDS[name].format(limit_text)
