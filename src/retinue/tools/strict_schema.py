"""Schemas that providers can enforce while a reply is written: few keywords, closed objects, all
fields required."""

from __future__ import annotations

from typing import Any

_KEYWORDS = {
    *("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const"),
    *("description", "title", "$ref", "$defs"),
}


def strict_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema with its objects closed; None if it says what such schemas cannot."""
    try:
        return _closed(schema)
    except _LooseSchema:
        return None


class _LooseSchema(Exception):
    """A part cannot be written strictly."""


def _closed(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict) or not schema or not schema.keys() <= _KEYWORDS:
        raise _LooseSchema
    out = dict(schema)
    if schema.get("type") == "object":
        fields = schema.get("properties", {})
        if not fields or set(schema.get("required", ())) != set(fields):
            raise _LooseSchema
        if schema.get("additionalProperties", False) is not False:
            raise _LooseSchema
        out["properties"] = {name: _closed(part) for name, part in fields.items()}
        out["additionalProperties"] = False
    elif schema.get("type") == "array":
        out["items"] = _closed(schema.get("items"))
    elif not schema.keys() & {"type", "anyOf", "enum", "const", "$ref"}:
        raise _LooseSchema
    if "anyOf" in schema:
        out["anyOf"] = [_closed(part) for part in schema["anyOf"]]
    if "$defs" in schema:
        out["$defs"] = {name: _closed(part) for name, part in schema["$defs"].items()}
    return out
