"""The accepted spellings of settings: their own names, or those in the family's document. What
there is not is named beside what there is, in the spelling that was used."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from retinue.errors import ConfigError
from retinue.formats.safe_text import one_line
from retinue.formats.suggestion import nearest

_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


def snake(name: str) -> str:
    return _HUMP.sub(lambda m: "_" + m[1].lower(), name)


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def is_camel(name: str) -> bool:
    return snake(name) != name


def near(word: str, known_names: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing. Words that differ only in how they are spelled are near."""
    plain = {k.rpartition(".")[2].replace("_", "").lower(): k for k in known_names}
    last = word[:80].rpartition(".")[2]
    name = nearest(last.replace("_", ""), plain)
    return f" Did you mean {plain[name]!r}?" if name else ""


def unknown(key: str, known_names: Iterable[str], of: str) -> str:
    """Why a setting is not taken, and what there is instead."""
    listed = list(known_names)
    lack = f"Unknown setting {one_line(key, 80)!r}.{near(key, listed)} Known: {', '.join(listed)}"
    return f"Invalid settings of {of}: {lack}"


def as_written(fields: Iterable[str], keys: Iterable[str], *, is_camels: bool) -> list[str]:
    """The names of settings in the spelling of these keys, if the family's document spells them
    so."""
    return [camel(f) for f in fields] if is_camels and any(map(is_camel, keys)) else list(fields)


def read_settings(
    name: str, type_: type[msgspec.Struct], values: Mapping[str, Any], *, is_camels: bool
) -> dict[str, Any]:
    """The settings by their own names; `ConfigError` names the first that there is not, or that is
    set twice."""
    fields = type_.__struct_fields__
    out: dict[str, Any] = {}
    for key, value in values.items():
        for field, inner in _named(key, value, fields, is_camels=is_camels):
            if field not in fields:
                there = as_written(fields, [key], is_camels=is_camels) + inner_names(type_)
                if field not in (key, snake(key)):  # one of a table
                    head = f"{snake(key)}_"
                    inner_ones = [
                        f"{key}.{f.removeprefix(head)}" for f in fields if f.startswith(head)
                    ]
                    raise ConfigError(
                        unknown(f"{key}.{field.removeprefix(head)}", inner_ones, f"family {name!r}")
                    )
                raise ConfigError(unknown(key, there, f"family {name!r}"))
            if field in out:
                raise ConfigError(
                    f"Family {name!r}: {field!r} is set twice, also as {one_line(key, 80)!r}"
                )
            out[field] = inner
    for field, kind in _tables(type_):
        if isinstance(out.get(field), Mapping):
            for key in out[field]:
                if key not in kind.__struct_fields__:
                    raise ConfigError(
                        unknown(key, kind.__struct_fields__, f"{field} of family {name!r}")
                    )
    return out


def inner_names(type_: type[msgspec.Struct]) -> list[str]:
    """The settings that are in a table of their own, as `concurrency_limits.max_depth`."""
    return [
        f"{field}.{inner}" for field, kind in _tables(type_) for inner in kind.__struct_fields__
    ]


def _tables(type_: type[msgspec.Struct]) -> list[tuple[str, type[msgspec.Struct]]]:
    hints = typing.get_type_hints(type_).items()
    return [
        (f, kind)
        for f, kind in hints
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ]


def _named(
    key: str, value: Any, fields: tuple[str, ...], *, is_camels: bool
) -> list[tuple[str, Any]]:
    """A table of the document may be several settings of ours: `tools.deny` is `tools_deny`."""
    if key in fields or not is_camels:
        return [(key, value)]
    plain = snake(key)
    if (
        plain not in fields
        and isinstance(value, Mapping)
        and any(f.startswith(f"{plain}_") for f in fields)
    ):
        return [(f"{plain}_{snake(inner)}", v) for inner, v in value.items()]
    return [(plain, value)]
