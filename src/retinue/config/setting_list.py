"""The list of settings: names, types, defaults, and how a value is checked."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from retinue.config.problems import shown
from retinue.config.schema import About, Configuration, explained
from retinue.formats.suggestion import did_you_mean

TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_RULE = re.compile(r"[^\s,()]+(?:\([^)]*\))?")


class Setting(NamedTuple):
    """One setting of the schema. `*` in its key is a name that the user chooses."""

    key: tuple[str, ...]
    type: Any
    about: About
    default: Any

    @property
    def variable(self) -> str:
        if self.about.variable is not None:
            return self.about.variable
        if is_mapping(self.type):
            return ""
        name = self.about.flag.lstrip("-") or "_".join(self.key)
        return "RETINUE_" + name.replace("-", "_").upper()

    @property
    def variables(self) -> tuple[str, ...]:
        """Those that are read; the first that is set counts."""
        return tuple(name for name in (self.variable, self.about.old_variable) if name)


def settings() -> Iterator[Setting]:
    """All settings there are."""
    defaults = Configuration()
    for name, (kind, about) in explained(Configuration).items():
        if about is not None:
            yield Setting((name,), kind, about, getattr(defaults, name))
        else:
            section = getattr(defaults, name)
            for inner, (inner_type, inner_about) in explained(kind).items():
                assert inner_about is not None
                yield Setting((name, inner), inner_type, inner_about, getattr(section, inner))


@lru_cache(maxsize=4096)
def setting_of(key: tuple[str, ...]) -> Setting | None:
    """The setting that a key belongs to: itself, or the mapping that it is an entry of."""
    for setting in every_setting():
        pattern = setting.key
        if pattern == key:
            return setting
        if is_mapping(setting.type) and key[: len(pattern)] == pattern and len(key) > len(pattern):
            return setting
    return None


@lru_cache(maxsize=1)
def every_setting() -> tuple[Setting, ...]:
    return tuple(settings())


def bare(kind: Any) -> Any:
    return getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind


def is_mapping(kind: Any) -> bool:
    return get_origin(bare(kind)) is dict


def check_value(kind: Any, about: About, value: Any) -> Any:
    """The value as it is used; `ValueError` says what is wrong with it, without quoting it."""
    try:
        value = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_in_words(str(error), value, kind)) from None
    except (RecursionError, OverflowError):
        raise ValueError("Nested too deeply, or too large") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("Expected a finite number")
    if about.check is not None and value is not None and value != "":
        value = tuple(map(about.check, value)) if isinstance(value, tuple) else about.check(value)
    return value


_TYPES = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
}
_TYPES |= {
    "object": "a table",
    "null": "nothing",
    "datetime": "a date",
    "date": "a date",
    "time": "a time",
}


def _in_words(message: str, value: Any, kind: Any) -> str:
    """What msgspec says, for people."""
    choices = _choices(kind)
    if choices and isinstance(value, str):
        return (
            f"{shown(value)!r} is not one of: {', '.join(choices)}.{did_you_mean(value, choices)}"
        )
    match = re.match(r"Expected `(.+?)`, got `(.+?)`(?: - at `\$\[(?:\.\.\.|\d+)\]`)?", message)
    if match:
        types = " or ".join(
            _TYPES.get(t.strip(), t.strip()) for t in match[1].split("|") if t.strip() != "null"
        )
        inner = " in the list" if " - at " in message else ""
        return f"Expected {types}{inner}, not {_TYPES.get(match[2], match[2])}"
    bound = re.match(r"Expected `\w+` (>=|<=|>|<) ([\d.eE+-]+)", message)
    if bound:
        words = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
        return f"Expected {words[bound[1]]} {bound[2]}"
    return shown(message, 200)


def _choices(kind: Any) -> list[str]:
    plain = bare(kind)
    return [str(a) for a in get_args(plain)] if get_origin(plain) is Literal else []


def from_text(setting: Setting, text: str, kind: Any = None) -> Any:
    """A value that was written as a word: of a variable, or behind `config set`."""
    kind = setting.type if kind is None else kind
    plain = bare(kind)
    types = {bare(t) for t in get_args(plain)} or {plain}
    word = text.strip()
    value: Any = text
    if plain is bool:
        if word.lower() not in (*TRUE, *FALSE):
            raise ValueError(f"Expected one of: {', '.join((*TRUE, *FALSE))}")
        value = word.lower() in TRUE
    elif _is_list(plain):
        value = _split(word, setting.about.splits)
    elif str not in types and (int in types or plain is int):
        value = _number(word, int, "a whole number")
    elif str not in types and (float in types or plain is float):
        value = _number(word, float, "a number")
    return check_value(kind, setting.about, value)


def _is_list(plain: Any) -> bool:
    return get_origin(plain) is tuple or any(get_origin(bare(t)) is tuple for t in get_args(plain))


def _number(word: str, kind: type[int] | type[float], what: str) -> Any:
    try:
        return kind(word) if len(word) < 40 else kind("none")
    except ValueError:
        raise ValueError(f"Expected {what}, not {shown(word)!r}") from None


def _split(text: str, how: str) -> list[str]:
    if how == "paths":
        return [p for p in text.split(os.pathsep) if p]
    if how == "rules":
        return _RULE.findall(text)
    return [p.strip() for p in text.split(",") if p.strip()]
