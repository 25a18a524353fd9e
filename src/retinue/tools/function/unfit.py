"""A value that does not match its type: its path, and what was expected."""

from __future__ import annotations

from typing import Any

import msgspec

from retinue.formats.fair_cut import clip

MOST_SHOWN = 120


class Unfit(Exception):
    """`path` leads to the value, from the outside in; `problem` says what is wrong with it."""

    def __init__(self, problem: str, path: list[Any] | None = None) -> None:
        super().__init__(problem)
        self.problem, self.path = problem, path or []

    def inside(self, key: object) -> Unfit:
        """The same, seen from the thing that holds it."""
        self.path.insert(0, key)
        return self

    def __str__(self) -> str:
        if not self.path:
            return self.problem
        first, *rest = self.path
        way = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in rest)
        return f"{first}{way}: {self.problem}"


def expected(what: str, value: Any) -> Unfit:
    return Unfit(f"expected {what}, got {shown(value)}")


def shown(value: Any) -> str:
    """A value as the model wrote it, not too long."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return clip(text, MOST_SHOWN)
