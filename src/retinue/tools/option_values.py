"""Checks the value of an option against its type. A wrong one is refused where it is written, with
the name of the option."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from retinue.errors import ConfigError

K = TypeVar("K")
MOST_SHOWN = 80
_IDS = ("run", "root")

_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number of seconds",
    bool: "True or False",
    timedelta: "a timedelta",
    datetime: "a datetime",
}


def check_values(who: str, options: Mapping[str, Any], table: Any) -> None:
    """`table` is a `TypedDict` with the types of the options."""
    kinds = _kinds(table)
    for name, value in options.items():
        if name in kinds:
            check_value(who, name, value, kinds[name])


def check_value(who: str, name: str, value: Any, kind: Any) -> None:
    """Refuses a value that is not of this type. An object that has an id is not its id."""
    if type(value) is kind or _fits(value, kind):
        return
    is_id = kind is str and name in _IDS
    what = f"the id of a {name}" if is_id else words(kind)
    hint = f" Write {name}.id." if is_id and isinstance(getattr(value, "id", None), str) else ""
    raise ConfigError(f"{who}: {name} is {what}, not {shown(value)}.{hint}", field=name)


def shown(value: object) -> str:
    """A value as an error says it: what is long is named by its type."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else _with_article(type(value).__name__)


def listed(name: str, things: Iterable[K], kind: type[K]) -> tuple[K, ...]:
    """An option of `Retinue` that is a list of such things."""
    if not isinstance(things, Iterable) or isinstance(things, str):
        raise ConfigError(
            f"Retinue({name}=) is a list of {kind.__name__}(...), not {shown(things)}."
        )
    out = tuple(things)
    for thing in out:
        if not isinstance(thing, kind):
            raise ConfigError(
                f"Retinue({name}=[...]) takes {kind.__name__}(...), not {shown(thing)}."
            )
    return out


@cache
def _kinds(table: Any) -> dict[str, Any]:
    return typing.get_type_hints(table)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, as far as a class, a union, a choice or a container says so."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in inner)
    if origin is typing.Literal:
        return isinstance(value, str) and value in inner
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items()
        )
    if origin is not None and issubclass(origin, Sequence):
        is_list = isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping))
        return is_list and all(_fits(part, inner[0]) for part in value)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    kind = origin or kind
    if kind is Any or not isinstance(kind, type):
        return True
    if getattr(kind, "_is_protocol", False):
        return not isinstance(value, type) and all(hasattr(value, n) for n in _members(kind))
    return isinstance(value, kind)


@cache
def _members(protocol: type) -> Collection[str]:
    """What an object needs in order to be one of a protocol."""
    classes = [c for c in protocol.__mro__ if getattr(c, "_is_protocol", False)]
    names = {n for c in classes for n in (*vars(c), *vars(c).get("__annotations__", {}))}
    return [name for name in names if not name.startswith("_")]


def words(kind: Any) -> str:
    """What a value of this type is called."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(words(part) for part in inner if part is not type(None))
    if origin is typing.Literal:
        return " or ".join(map(repr, inner))
    if origin is not None and issubclass(origin, Mapping):
        return f"a dict of {_name(inner[0])} to {_name(inner[1])}"
    if origin is not None and issubclass(origin, Sequence):
        return f"a list of {_name(inner[0])}"
    if origin is Callable:
        return "a function"
    return _WORDS.get(kind, _with_article(_name(kind)))


def _with_article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIO' else 'a'} {name}"


def _name(kind: Any) -> str:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(map(_name, typing.get_args(kind)))
    return str(getattr(kind, "__name__", kind))
