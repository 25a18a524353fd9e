"""The path of a wrong field in a value, with the names that programs use instead of those
in JSON."""

from __future__ import annotations

import re
from typing import Any, get_args, get_origin

import msgspec

_PATH = re.compile(r"`\$((?:\.\w+|\[[^\]]*\])+)`")
_STEP = re.compile(r"\.(\w+)|\[[^\]]*\]")


def in_field_names(message: str, kind: type[msgspec.Struct]) -> str:
    """A message of msgspec about a value of this class, with the names of its fields in paths."""
    return _PATH.sub(lambda match: f"`${_translated(match[1], kind)}`", message)


def _translated(path: str, kind: Any) -> str:
    out = ""
    for step in _STEP.finditer(path):
        structs = list(_structs_in(kind))
        if step[1] is None:
            out += step[0]
            continue
        fields = (f for one in structs for f in msgspec.structs.fields(one))
        field = next((f for f in fields if f.encode_name == step[1]), None)
        out += f".{field.name if field is not None else step[1]}"
        kind = field.type if field is not None else None
    return out


def _structs_in(kind: Any) -> list[type[msgspec.Struct]]:
    """The structs that a type admits, also as items of a list or a dict."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    if get_origin(kind) is None:
        return []
    return [one for part in get_args(kind) for one in _structs_in(part)]
