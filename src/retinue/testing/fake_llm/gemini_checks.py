"""What Gemini refuses in any object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from retinue.core.image_checks import image_facts
from retinue.core.messages import Image
from retinue.testing.fake_llm.dialect import FakeError, encode

UNEVEN = (
    "Please ensure that the number of function response parts is equal to the number of function "
    "call parts of the function call turn."
)
CALL_TURN = (
    "Please ensure that function call turn comes immediately after a user turn or after a "
    "function response turn."
)
RESPONSE_TURN = (
    "Please ensure that function response turn comes immediately after a function call turn."
)
UNSIGNED_CALL = (
    "Function call is missing a thought_signature in functionCall parts. This is required for "
    "tools to work correctly, and missing thought_signature may lead to degraded model "
    "performance. Additional data, function call `{name}` , position {n}."
)

_SNAKE = re.compile(r"_([a-z])")
T = TypeVar("T")


def refuse_gemini(message: str, details: Any = None) -> FakeError:
    return FakeError(400, "INVALID_ARGUMENT", message, details=details)


def camel_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    """The same with names in camel case. (Most have none to convert.)"""
    if "_" not in "".join(value):
        return value if isinstance(value, dict) else dict(value)
    return {_SNAKE.sub(lambda m: m[1].upper(), name): part for name, part in value.items()}


def same_name(value: Any, kind: type[T], at: str, *index: int) -> T:
    """The value, if it is of this type. Its position is spelled out only when it is not."""
    if not isinstance(value, kind):
        text = encode(value).decode()[:80]
        raise refuse_gemini(
            f"Invalid value at '{at % index if index else at}' ({kind.__name__} expected), {text}"
        )
    return value


def unknown_fields(
    value: Mapping[str, Any], known_names: frozenset[str], at: str, *index: int
) -> None:
    if value.keys() <= known_names:
        return
    at = at % index if index else at
    name = min(value.keys() - known_names)
    where = f" at '{at}'" if at else ""
    text = f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.'
    violation = {"field": at, "description": text} if at else {"description": text}
    kind = "type.googleapis.com/google.rpc.BadRequest"
    raise refuse_gemini(text, [{"@type": kind, "fieldViolations": [violation]}])


def inline_image(value: Any, at: str, *index: int) -> Image:
    """The picture of a part. One that is not what its media type says is refused."""
    data = camel_keys(same_name(value, dict, at, *index))
    image = Image(media_type=str(data.get("mimeType", "")), data=str(data.get("data", "")))
    if image.media_type.startswith("image/") and image_facts(image).wrong:
        raise refuse_gemini(
            "Unable to process input image. Please retry or report in the developer forum."
        )
    return image
