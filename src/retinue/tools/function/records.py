"""Types with named fields, handled the same: dataclasses, `TypedDict` and msgspec structs."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import NODEFAULT

from retinue.errors import ConfigError


class RecordField(NamedTuple):
    """`key` is its name in JSON. `default` counts only if `has_default`; one that is made anew each
    time is not shown."""

    name: str
    key: str
    hint: Any
    is_required: bool
    has_default: bool = False
    default: Any = None


class Record(NamedTuple):
    """Its fields, what makes one, and whether it takes fields that it does not know."""

    fields: list[RecordField]
    make: Callable[..., Any]
    is_open: bool = False


def is_record(cls: type) -> bool:
    """Structs that are arrays or carry a tag are left to msgspec."""
    if issubclass(cls, msgspec.Struct):
        config = cls.__struct_config__
        return not (config.array_like or config.tag or hasattr(cls, "__parameters__"))
    return dataclasses.is_dataclass(cls) or typing.is_typeddict(cls)


def record_fields(cls: Any, arguments: tuple[Any, ...] = ()) -> Record:
    """The fields of a class; `arguments` are those of a generic one."""
    about = _fields(cls)
    if not arguments:
        return about
    bound = dict(zip(cls.__parameters__, arguments, strict=True))
    fields = [field._replace(hint=filled_in(field.hint, bound)) for field in about.fields]
    return about._replace(fields=fields)


def filled_in(hint: Any, bound: Mapping[Any, Any]) -> Any:
    """A type with arguments in the place of type variables."""
    if isinstance(hint, typing.TypeVar):
        return bound.get(hint, hint)
    own = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not own:
        return hint
    return hint[tuple(bound.get(variable, variable) for variable in own)]


def _fields(cls: Any) -> Record:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise ConfigError(unresolved(cls.__name__, error)) from None
    if issubclass(cls, msgspec.Struct):
        fields = [
            RecordField(
                f.name,
                f.encode_name,
                hints[f.name],
                f.required,
                f.default is not NODEFAULT,
                f.default,
            )
            for f in msgspec.structs.fields(cls)
        ]
        return Record(fields, cls, is_open=not cls.__struct_config__.forbid_unknown_fields)
    if typing.is_typeddict(cls):
        return Record([_key(cls, name, hint) for name, hint in hints.items()], dict)
    missing = dataclasses.MISSING
    return Record(
        [
            RecordField(
                f.name,
                f.name,
                hints[f.name],
                f.default is missing and f.default_factory is missing,
                f.default is not missing,
                f.default,
            )
            for f in dataclasses.fields(cls)
            if f.init
        ],
        cls,
    )


def unresolved(name: str, error: NameError) -> str:
    """What is said of an annotation that names something unknown."""
    return (
        f"cannot resolve an annotation of {name}: {error}. Define the type at the top of its "
        "module, and import it outside of `if TYPE_CHECKING`"
    )


def _key(cls: Any, name: str, hint: Any) -> RecordField:
    is_required = name in cls.__required_keys__
    while (origin := typing.get_origin(hint)) is not None and _word(origin) in _QUALIFIERS:
        is_required = _QUALIFIERS[_word(origin)] if _word(origin) != "ReadOnly" else is_required
        hint = typing.get_args(hint)[0]
    return RecordField(name, name, hint, is_required)


_QUALIFIERS = {"Required": True, "NotRequired": False, "ReadOnly": True}


def _word(origin: Any) -> str:
    return str(getattr(origin, "_name", None) or getattr(origin, "__name__", ""))


def record_text(cls: type) -> str:
    """Its docstring, unless it is the one that a dataclass writes for itself."""
    doc = cls.__dict__.get("__doc__") or ""
    return "" if doc.startswith(f"{cls.__name__}(") else inspect.cleandoc(doc)
