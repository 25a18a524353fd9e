"""A JSON schema of a msgspec type as providers want it."""

from __future__ import annotations

from typing import Any

import msgspec


def plain_schema(type_: Any) -> dict[str, Any]:
    """A JSON schema without references at its root, as providers want it for tool parameters."""
    schema = msgspec.json.schema(type_)
    definitions = schema.pop("$defs", {})
    ref = schema.pop("$ref", "")
    if ref:
        schema = definitions.pop(ref.rsplit("/", 1)[1])
    if definitions:
        schema["$defs"] = definitions
    schema.pop("title", None)
    return dict(schema)
