"""What OpenAI refuses in a tool's schema."""

from __future__ import annotations

from typing import Any

from retinue.testing.fake_llm.strict_checks import bad_schema


def schema_problem(schema: Any, is_strict: bool) -> str:
    if not isinstance(schema, dict):
        return f"{schema!r} is not of type 'object', 'boolean'."
    if schema.get("type") != "object":
        return (
            f"schema must be a JSON Schema of 'type: \"object\"', got 'type: "
            f'"{schema.get("type")}"\'.'
        )
    if bad := bad_schema(schema):
        return f"In context={bad[0]}, {bad[1]}."
    return _loose(schema, (), is_strict)


def _loose(schema: Any, at: tuple[str, ...], is_strict: bool) -> str:
    """What is JSON schema, but not OpenAI's: arrays name their items; strict objects name and close
    everything."""
    if not isinstance(schema, dict):
        return ""
    if schema.get("type") == "array" and "items" not in schema:
        return f"In context={at}, array schema missing items."
    parts = schema.get("properties", {})
    if is_strict and schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            return (
                f"In context={at}, 'additionalProperties' is required to be supplied and to be "
                "false."
            )
        if absent := [name for name in parts if name not in schema.get("required", [])]:
            return (
                f"In context={at}, 'required' is required to be supplied and to be an array "
                f"including every key in properties. Missing '{absent[0]}'."
            )
    for name, part in parts.items():
        if problem := _loose(part, (*at, "properties", name), is_strict):
            return problem
    for part in (schema.get("items"), *schema.get("anyOf", [])):
        if problem := _loose(part, (*at, "items"), is_strict):
            return problem
    return ""
