"""A parameter's type: its JSON schema for the model, and a function that reads what the model wrote
or explains what is wrong.

Records, unions and containers are read here, so that a bound counts wherever it is and a problem is
reported with its path. What is left is msgspec's; a type with a pydantic schema is pydantic's."""

from __future__ import annotations

import collections.abc as abc
import enum
import os
import pathlib
import re
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from retinue.errors import ConfigError
from retinue.tools.function.constraints import Constraints
from retinue.tools.function.plain_shapes import (
    Shape,
    array_shape,
    choice_shape,
    integer_shape,
    mapping_shape,
    text_shape,
    tuple_shape,
)
from retinue.tools.function.pydantic_types import PydanticShape, brings_pydantic, is_alias
from retinue.tools.function.record_shapes import object_schema, record_reader
from retinue.tools.function.records import (
    RecordField,
    filled_in,
    is_record,
    record_fields,
    unresolved,
)
from retinue.tools.function.unfit import Unfit, expected

REF = "#/$defs/"
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_SETS: dict[Any, type] = {
    set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
    abc.Set: frozenset,
}
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_WORDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "date": "a date such as 2026-01-31",
    "datetime": "a date and time such as 2026-01-31T12:00:00Z",
    "time": "a time such as 12:30:00",
    "timedelta": "a duration such as PT90S",
    "Decimal": 'a decimal number such as "12.50"',
    "UUID": "a UUID",
    "bytes": "bytes in base64",
    "NoneType": "null",
}


class Shapes:
    """Makes shapes that share their definitions: one for each tool, or result."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._records: dict[Any, tuple[str, list[Callable[[Any], Any]]]] = {}
        self._aliases: dict[Any, list[Callable[[Any], Any]]] = {}

    def of(self, hint: Any) -> Shape:
        """Raises `ConfigError` for a type that cannot be described."""
        while isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        if is_alias(typing.get_origin(hint) or hint):
            return self._alias(hint)
        if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
            return Shape(lambda value: value, {}, "any value")
        if brings_pydantic(hint):
            return self._pydantic(hint)
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self._bounded(self.of(inner[0]), Constraints(inner[1:]))
        if origin in (typing.Union, types.UnionType):
            return self._union([self.of(part) for part in inner])
        if origin is typing.Literal:
            return choice_shape(inner)
        if isinstance(origin, type) and is_record(origin):
            return self._record(origin, inner)
        return self._collected(origin or hint, inner) or self._single(hint)

    def _alias(self, hint: Any) -> Shape:
        """What a type alias means; one that contains itself becomes a definition."""
        name = re.sub(r"\W+", "_", str(hint)).strip("_")
        reference = {"$ref": REF + name}
        if hint in self._aliases:
            readers = self._aliases[hint]
            return Shape(lambda value: readers[0](value), reference, "a value that fits")
        readers = self._aliases[hint] = []
        alias = typing.get_origin(hint) or hint
        bound = dict(zip(alias.__type_params__, typing.get_args(hint), strict=True))
        try:
            shape = self.of(filled_in(alias.__value__, bound))
        except NameError as error:
            raise ConfigError(unresolved(name, error)) from None
        finally:
            del self._aliases[hint]
        readers.append(shape.read)
        if name not in _references(shape.schema):
            return shape
        self._define({name: shape.schema})
        return shape._replace(schema=reference)

    def described(self, shape: Shape, text: str) -> Shape:
        """The same with a description; a reference takes none, so that its target is put in its
        place."""
        schema = shape.schema
        if name := schema.get("$ref", "").removeprefix(REF):
            schema = self.definitions[name]
        return shape._replace(schema={**schema, "description": text})

    def whole(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A schema with the definitions that it refers to."""
        needed: dict[str, Any] = {}
        todo = [schema]
        while todo:
            for name in _references(todo.pop()):
                if name not in needed:
                    needed[name] = self.definitions[name]
                    todo.append(needed[name])
        ordered = {name: text for name, text in self.definitions.items() if name in needed}
        return {**schema, "$defs": ordered} if ordered else schema

    def _pydantic(self, hint: Any) -> Shape:
        adapter = PydanticShape(hint)
        schema = adapter.schema()
        self._define(schema.pop("$defs", {}))
        return Shape(adapter.read, schema, schema.get("title", "a value that fits"))

    def _define(self, definitions: dict[str, Any]) -> None:
        for name, schema in definitions.items():
            if self.definitions.setdefault(name, schema) != schema:
                raise ConfigError(f"two different types are named {name!r}; rename one")

    def _bounded(self, shape: Shape, limits: Constraints) -> Shape:
        schema = limits.describe(
            self.described(shape, limits.description).schema
            if limits.description or (limits.limits and "$ref" in shape.schema)
            else shape.schema
        )
        if not limits.limits and not limits.checks:
            return shape._replace(schema=schema)

        def read(value: Any) -> Any:
            out = shape.read(value)
            if problem := limits.problem(out):
                raise expected(f"{shape.words}, {problem}", value)
            return out

        return Shape(read, schema, shape.words)

    def _union(self, parts: list[Shape]) -> Shape:
        words = " or ".join(part.words for part in parts)
        others = [part for part in parts if part.schema.get("type") != "null"]
        exact: dict[type, list[Shape]] = {
            int: sorted(parts, key=lambda part: part.schema.get("type") != "integer"),
            float: sorted(parts, key=lambda part: part.schema.get("type") != "number"),
        }

        def read(value: Any) -> Any:
            if len(others) == 1 and value is not None:
                return others[0].read(value)
            for part in exact.get(type(value), parts):
                try:
                    return part.read(value)
                except Unfit:
                    continue
            raise expected(words, value)

        return Shape(read, {"anyOf": [part.schema for part in parts]}, words)

    def _collected(self, kind: Any, inner: tuple[Any, ...]) -> Shape | None:
        if kind in _LISTS:
            return array_shape(self.of(inner[0] if inner else Any), list)
        if kind in _SETS:
            shape = array_shape(self.of(inner[0] if inner else Any), _SETS[kind])
            return shape._replace(schema={**shape.schema, "uniqueItems": True})
        if kind is tuple and (not inner or inner[-1] is Ellipsis):
            return array_shape(self.of(inner[0] if inner else Any), tuple)
        if kind is tuple:
            return tuple_shape([self.of(part) for part in inner])
        if kind in _DICTS:
            return mapping_shape(inner[0] if inner else str, self.of(inner[1] if inner else Any))
        return None

    def _single(self, hint: Any) -> Shape:
        if isinstance(hint, type):
            if issubclass(hint, enum.Enum):
                return choice_shape(hint)
            if issubclass(hint, pathlib.PurePath) or hint is os.PathLike:
                make: Any = pathlib.Path if hint is os.PathLike else hint
                return text_shape(make, {"type": "string", "format": "path"}, "a path")
            if is_record(hint):
                return self._record(hint)
            if hint is int:
                return integer_shape()
        return self._leaf(hint)

    def _leaf(self, hint: Any) -> Shape:
        try:
            (schema,), parts = msgspec.json.schema_components((hint,), ref_template=REF + "{name}")
        except (TypeError, NameError) as error:
            name = getattr(hint, "__qualname__", repr(hint))
            reason = str(error).partition("\n")[0].rstrip(".")
            more = "" if reason.endswith(":") else f" ({reason})"
            raise ConfigError(
                f"{name} cannot be written as JSON{more}. Take a dataclass, a TypedDict, a "
                "pydantic model or a plain type"
            ) from None
        self._define(parts)
        words = _WORDS.get(getattr(hint, "__name__", ""), "")

        def read(value: Any) -> Any:
            try:
                return msgspec.convert(value, hint)
            except msgspec.ValidationError as error:
                raise (expected(words, value) if words else Unfit(str(error))) from None

        return Shape(read, dict(schema), words or "a value that fits")

    def _record(self, cls: type, arguments: tuple[Any, ...] = ()) -> Shape:
        """Known before its fields are, for one of them may be of the same type."""
        kind = (cls, arguments)
        if kind not in self._records:
            name = "_".join([cls.__name__, *(getattr(a, "__name__", str(a)) for a in arguments)])
            if any(other == name for other, _ in self._records.values()):
                raise ConfigError(f"two different types are named {name!r}; rename one")
            self._records[kind] = (name, readers := [])
            about = record_fields(cls, arguments)
            fields = [(field, self._field_shape(cls, field)) for field in about.fields]
            readers.append(record_reader(about.make, fields, is_open=about.is_open))
            self.definitions[name] = object_schema(name, cls, fields, is_open=about.is_open)
        name, readers = self._records[kind]
        return Shape(lambda value: readers[0](value), {"$ref": REF + name}, f"an object ({name})")

    def _field_shape(self, cls: type, field: RecordField) -> Shape:
        try:
            return self.of(field.hint)
        except ConfigError as error:
            raise ConfigError(f"field {field.name!r} of {cls.__name__}: {error}") from None


def _references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"].removeprefix(REF)] if isinstance(schema.get("$ref"), str) else []
        return own + [name for part in schema.values() for name in _references(part)]
    return (
        [name for part in schema for name in _references(part)] if isinstance(schema, list) else []
    )
