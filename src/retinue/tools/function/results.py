"""The type of an agent's result, handled like a parameter's."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from retinue.tools.function.plain_shapes import Shape
from retinue.tools.function.shapes import REF, Shapes


@lru_cache(maxsize=256)
def result_shape(output: Any) -> Shape:
    """What reads a result of this type; its schema carries its definitions and is not a
    reference."""
    shapes = Shapes()
    shape = shapes.of(output)
    schema = shape.schema
    if name := schema.get("$ref", "").removeprefix(REF):
        schema = shapes.definitions[name]
    return shape._replace(schema=shapes.whole(schema))
