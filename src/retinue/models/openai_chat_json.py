"""Reads and writes the JSON of many servers, which differ in details."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from retinue.formats.safe_text import clean

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def load_json(data: bytes) -> Any:
    """JSON, or `ValueError`. Lone surrogates and broken UTF-8 come through, to be cleaned with the
    text."""
    try:
        return _decode(data)
    except (ValueError, RecursionError):
        try:
            return json.loads(data.decode("utf-8-sig", "replace"))
        except RecursionError:
            raise ValueError("nested too deep") from None


def is_object(text: str) -> bool:
    try:
        _decode_object(text)
    except (ValueError, RecursionError):
        return False
    return True


def as_json(value: object) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return clean(json.dumps(value, ensure_ascii=False, default=msgspec.to_builtins)).encode()


def as_a(kind: type[T], value: object) -> T:
    """The value if it is of the kind, else an empty one: no server is trusted to send what it
    should."""
    return value if isinstance(value, kind) else kind()
