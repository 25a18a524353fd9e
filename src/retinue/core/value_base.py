"""The base class of all values, and the check of values from outside."""

from __future__ import annotations

from typing import Any, Self, TypeVar, dataclass_transform

import msgspec

from retinue.core.json_paths import in_field_names


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all values: immutable and small on the wire. Arguments are keywords.

    A value is a tree, so the collector of cycles need not look at it (`gc=False`): with thousands
    of runs that is a good part of the CPU."""

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; names and types are checked."""
        return checked(msgspec.structs.replace(self, **changes))


T = TypeVar("T", bound=Value)


def checked(value: T) -> T:
    """The same value, each field of its declared type; otherwise `ValueError` or `TypeError` says
    which is not.

    Constructing a value checks nothing, for speed: what comes from outside passes here before the
    machine sees it."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value), type=type(value))
    except msgspec.ValidationError as error:
        raise ValueError(in_field_names(str(error), type(value))) from None
