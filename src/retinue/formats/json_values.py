"""Values of JSON as types: `2.0` is an integer there, which the types of Python say it is not."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def converted(data: Any, kind: type[T], *, strict: bool = True) -> T:
    """What a program sent, as `kind`. Raises `msgspec.ValidationError`, and `RecursionError` or
    `OverflowError` for values that no program means."""
    try:
        return msgspec.convert(data, kind, strict=strict)
    except msgspec.ValidationError as first:
        whole = _with_integers(data)
        try:
            return msgspec.convert(whole, kind, strict=strict)
        except msgspec.ValidationError:
            raise first from None


def _with_integers(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _with_integers(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_with_integers(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data
