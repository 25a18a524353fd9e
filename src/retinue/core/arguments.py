"""Parses the arguments of a call once and strictly: the result is a valid value, or an error the
model can act on."""

from __future__ import annotations

import json
import math
from typing import Any

from retinue.formats.safe_text import clean

MAX_BYTES = 1 << 20
MAX_DEPTH = 64


class BadArguments(ValueError):
    """What was wrong with the arguments, for the model."""


def parse(text: str) -> dict[str, Any]:
    """A JSON object without duplicate keys, NaN, lone surrogates or absurd size or depth."""
    if len(text) > MAX_BYTES:
        raise BadArguments(
            f"the arguments are {len(text)} characters long; the limit is {MAX_BYTES}"
        )
    if not text.strip():
        return {}
    if is_deep(text):
        raise BadArguments(f"the arguments are nested more than {MAX_DEPTH} levels deep")
    try:
        value = _whole(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadArguments(f"the arguments are not valid JSON: {error}") from None
    except ValueError as error:
        raise BadArguments(f"the arguments are not valid: {error}") from None
    if isinstance(value, str):
        return parse(value) if value.lstrip()[:1] == "{" else _not_object(value)
    if not isinstance(value, dict):
        return _not_object(value)
    return value if text.isascii() and "\\u" not in text else _clean(value)


def is_deep(text: str) -> bool:
    """Whether JSON is nested deeper than any tool accepts; code that walks through it may run out
    of stack."""
    return text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH


def read(text: str) -> dict[str, Any] | None:
    """The arguments of a call as its tool will get them, for code that only reads the call; None if
    no tool will accept them."""
    try:
        return parse(text)
    except (BadArguments, RecursionError):
        return None


def _not_object(value: object) -> dict[str, Any]:
    raise BadArguments(f"the arguments must be a JSON object, not {type(value).__name__}")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise BadArguments(f"duplicate key: {key[:80]}")
            keys.add(key)
    return out


def _constant(name: str) -> None:
    raise BadArguments(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise BadArguments(f"{text[:40]} is too large a number")
    return value


_decoder = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_finite)


def _whole(text: str) -> Any:
    """What `decode` makes of it. An object without anything around it needs no look at what is
    around it."""
    if text[0] == "{" and text[-1] == "}":
        value, end = _decoder.raw_decode(text)
        if end == len(text):
            return value
    return _decoder.decode(text)


def _depth(text: str) -> int:
    """How deep brackets nest outside strings, without recursion."""
    depth = deepest = 0
    in_string = escaped = False
    for c in text:
        if in_string:
            if escaped:
                escaped = False
            elif c == "\\":
                escaped = True
            elif c == '"':
                in_string = False
        elif c == '"':
            in_string = True
        elif c in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif c in "]}":
            depth -= 1
    return deepest


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return _pairs([(_clean(k), _clean(v)) for k, v in value.items()])
    if isinstance(value, list):
        return [_clean(v) for v in value]
    return value
