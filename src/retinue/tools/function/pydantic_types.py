"""Types with a pydantic schema are read and described by pydantic, which is imported only
for them."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import msgspec

from retinue.errors import ConfigError
from retinue.tools.function.unfit import Unfit, shown

HOOK = "__get_pydantic_core_schema__"


def brings_pydantic(hint: Any, ids_seen: set[int] | None = None) -> bool:
    """Whether pydantic has to read this type, or one inside of it."""
    ids_seen = set() if ids_seen is None else ids_seen
    if id(hint) in ids_seen:
        return False
    ids_seen.add(id(hint))
    inner = list(typing.get_args(hint))
    if isinstance(hint, type):
        if hasattr(hint, HOOK) or hasattr(hint, "__pydantic_core_schema__"):
            return True
        if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
            inner += _hints(hint).values()
    if typing.get_origin(hint) is typing.Annotated and any(_is_validator(m) for m in inner[1:]):
        return True
    return any(brings_pydantic(part, ids_seen) for part in inner if not isinstance(part, str))


def is_alias(hint: Any) -> bool:
    """`type Name = ...`, or `TypeAliasType` before Python 3.12."""
    return type(hint).__name__ == "TypeAliasType"


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError:
        return {}


def _is_validator(mark: object) -> bool:
    """What pydantic's own marks do beside bounds (a validator, a serializer) only pydantic can."""
    if isinstance(mark, type):
        return False
    return hasattr(type(mark), HOOK) or (
        type(mark).__module__.startswith("pydantic") and not hasattr(mark, "metadata")
    )


class PydanticShape:
    """A type that pydantic reads."""

    def __init__(self, hint: Any) -> None:
        from pydantic import PydanticUserError, TypeAdapter

        try:
            self._adapter: Any = TypeAdapter(hint)
            self._described: dict[str, Any] = self._adapter.json_schema()
        except PydanticUserError as error:
            raise ConfigError(str(error.message).rstrip(".")) from None

    def schema(self) -> dict[str, Any]:
        """With what it refers to in `$defs`."""
        return dict(self._described)

    def read(self, value: Any) -> Any:
        """The value as JSON is read: a strict model takes the text of a date, for instance."""
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            problem = first["msg"]
            if first["type"] != "missing":
                problem += f", got {shown(first['input'])}"
            raise Unfit(problem, list(first["loc"])) from None

    def plain(self, value: Any) -> Any:
        """A value of the type as JSON has it."""
        return self._adapter.dump_python(value, mode="json")
