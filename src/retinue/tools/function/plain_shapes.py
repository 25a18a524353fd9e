"""Shapes of lists, tuples, objects and choices."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from retinue.tools.function.unfit import Unfit, expected


class Shape(NamedTuple):
    """`words` say what is expected, as they follow that word."""

    read: Callable[[Any], Any]
    schema: dict[str, Any]
    words: str


def array_shape(item: Shape, make: type) -> Shape:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise expected("a list", value)
        return make(_items(value, [item] * len(value)))

    return Shape(read, {"type": "array", "items": item.schema}, f"a list, each {item.words}")


def tuple_shape(items: list[Shape]) -> Shape:
    n = len(items)

    def read(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != n:
            raise expected(f"a list of {n}", value)
        return tuple(_items(value, items))

    schema: dict[str, Any] = {"type": "array", "minItems": n, "maxItems": n, "items": False}
    return Shape(read, {**schema, "prefixItems": [item.schema for item in items]}, f"a list of {n}")


def _items(value: list[Any], shapes: list[Shape]) -> list[Any]:
    out = []
    for n, (item, shape) in enumerate(zip(value, shapes, strict=True)):
        try:
            out.append(shape.read(item))
        except Unfit as error:
            raise error.inside(n) from None
    return out


def mapping_shape(key: Any, item: Shape) -> Shape:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise expected("an object", value)
        out = {}
        for name, part in value.items():
            try:
                out[name if key is str else msgspec.convert(name, key, strict=False)] = item.read(
                    part
                )
            except Unfit as error:
                raise error.inside(name) from None
            except msgspec.ValidationError as error:
                raise Unfit(f"as a key: {error}", [name]) from None
        return out

    words = f"an object, each value {item.words}"
    return Shape(read, {"type": "object", "additionalProperties": item.schema}, words)


def choice_shape(choices: Iterable[Any]) -> Shape:
    """One of these values; a member of an enum is written as its value."""
    by_text = {_text(choice): choice for choice in choices}
    words = f"one of {', '.join(by_text)}"

    def read(value: Any) -> Any:
        try:
            return by_text[_text(value)]
        except KeyError:
            raise expected(words, value) from None

    values = [msgspec.json.decode(text) for text in by_text]
    schema: dict[str, Any] = {"enum": values}
    kinds = {type(key) for key in values}
    if kinds == {str} or kinds == {int}:
        schema["type"] = "string" if kinds == {str} else "integer"
    return Shape(read, schema, words)


def _text(value: Any) -> str:
    """A value as JSON, which tells `true` from 1, and has one number 1."""
    value = value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()


def integer_shape() -> Shape:
    """JSON has one kind of number: `3.0` is an integer, `true` is none."""
    words = "an integer"

    def read(value: Any) -> Any:
        if type(value) is float and value.is_integer():
            return int(value)
        if type(value) is not int:
            raise expected(words, value)
        return value

    return Shape(read, {"type": "integer"}, words)


def text_shape(make: Callable[[str], Any], schema: dict[str, Any], words: str) -> Shape:
    def read(value: Any) -> Any:
        if not isinstance(value, str):
            raise expected(words, value)
        return make(value)

    return Shape(read, schema, words)
