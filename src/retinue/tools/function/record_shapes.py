"""Objects with named fields: how they are read, and their schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from retinue.tools.function.plain_shapes import Shape
from retinue.tools.function.records import RecordField, record_text
from retinue.tools.function.unfit import Unfit, expected


def record_reader(
    make: Callable[..., Any], fields: list[tuple[RecordField, Shape]], *, is_open: bool
) -> Callable[[Any], Any]:
    keys = {field.key for field, _ in fields}

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise expected("an object", value)
        if not is_open and (odd := next((key for key in value if key not in keys), None)):
            raise Unfit(f"there is no such field; there are {', '.join(keys)}", [odd])
        out = {}
        for field, shape in fields:
            if field.key in value:
                try:
                    out[field.name] = shape.read(value[field.key])
                except Unfit as error:
                    raise error.inside(field.key) from None
            elif field.is_required:
                raise Unfit(f"this field is required: {shape.words}", [field.key])
        try:
            return make(**out)
        except (TypeError, ValueError) as error:
            raise Unfit(str(error)) from None

    return read


def object_schema(
    name: str, cls: type, fields: list[tuple[RecordField, Shape]], *, is_open: bool
) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "title": name,
        "type": "object",
        "properties": {field.key: with_default(shape.schema, field) for field, shape in fields},
        "required": [field.key for field, _ in fields if field.is_required],
    }
    if text := record_text(cls):
        schema["description"] = text
    return schema if is_open else {**schema, "additionalProperties": False}


def with_default(schema: dict[str, Any], field: RecordField) -> dict[str, Any]:
    """The schema with the default, if there is one that JSON can write."""
    if field.is_required or not field.has_default or "$ref" in schema:
        return schema
    try:
        default = msgspec.to_builtins(field.default)
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError):
        return schema
    return {**schema, "default": default}
