"""Builds an example for a schema, for a model that got it wrong."""

from __future__ import annotations

from typing import Any

_BY_FORMAT = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:30:00",
    "duration": "PT90S",
    "uuid": "0198c2e1-0000-7000-8000-000000000000",
    "decimal": "12.50",
    "path": "notes/today.txt",
    "email": "name@example.org",
    "uri": "https://example.org/",
}
DEEPEST = 6


def example_of(schema: Any, definitions: dict[str, Any], depth: int = 0) -> Any:
    """Required fields only; an example or a default that the schema has goes first."""
    if not isinstance(schema, dict) or depth > DEEPEST:
        return None
    if isinstance(ref := schema.get("$ref"), str):
        return example_of(definitions.get(ref.rpartition("/")[2], {}), definitions, depth + 1)
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return example_of(schema[key][0], definitions, depth + 1)
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {
                name: example_of(fields.get(name, {}), definitions, depth + 1)
                for name in schema.get("required", ())
            }
        case "array":
            items = schema.get("prefixItems") or [schema.get("items", {})] * schema.get(
                "minItems", 1
            )
            return [example_of(item, definitions, depth + 1) for item in items]
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _text(schema)


def _number(schema: dict[str, Any]) -> Any:
    step = schema.get("multipleOf", 1)
    if "minimum" in schema:
        low = schema["minimum"]
        return -(-low // step) * step
    if "exclusiveMinimum" in schema:
        return (schema["exclusiveMinimum"] // step + 1) * step
    top = schema.get("maximum", schema.get("exclusiveMaximum", step + 1))
    return step if top > step else (top - 1) // step * step


def _text(schema: dict[str, Any]) -> str:
    if "pattern" in schema:
        return f"(a text that matches {schema['pattern']})"
    text = _BY_FORMAT.get(schema.get("format", ""), "text")
    least, most = schema.get("minLength", 0), schema.get("maxLength", len(text))
    return text.ljust(least, "t")[: max(least, most)]
