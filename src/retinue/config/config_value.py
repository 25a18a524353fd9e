"""The content of one configuration file as a value."""

from __future__ import annotations

from typing import Any

from retinue.core.values import Value


class Config(Value):
    """What one file says. `families` are ready to be given to an agent; `value` is a
    `schema.Configuration`."""

    families: tuple[Any, ...] = ()
    path: str = ""
    value: Any = None
