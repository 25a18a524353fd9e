"""The type of an agent's result, read and described as a parameter is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from retinue.errors import ConfigError
from retinue.tools.function.plain_shapes import Shape
from retinue.tools.function.shapes import REF, Shapes
from retinue.tools.function.unfit import Unfit


@lru_cache(maxsize=256)
def result_shape(output: Any) -> Shape:
    """What reads a result of this type; its schema carries its definitions and is no reference."""
    shapes = Shapes()
    shape = shapes.of(output)
    schema = shape.schema
    if name := schema.get("$ref", "").removeprefix(REF):
        schema = shapes.definitions[name]
    return shape._replace(schema=shapes.whole(schema))


def read_result(output: Any, data: Any) -> Any:
    """Stored data as a value of the type that it was checked against when it was handed in."""
    try:
        return result_shape(output).read(data)
    except Unfit as error:
        raise ConfigError(
            f"The stored result does not fit the output type that the agent has now: {error}"
        ) from None
