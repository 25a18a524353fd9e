"""How a check says that an invariant does not hold. Numbers are those of docs/guarantees.md."""

from __future__ import annotations

from typing import NoReturn


class Violation(AssertionError):
    """An invariant does not hold. `schedule` replays it."""


def broken(what: str) -> NoReturn:
    raise Violation(what)


def must(holds: object, what: str) -> None:
    if not holds:
        broken(what)
