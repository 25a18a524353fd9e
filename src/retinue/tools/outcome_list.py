"""Outcomes of several runs, in the order of their tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload


class OutcomeList(Sequence[Any]):
    """What `gather` returns. A run that failed is in it like any other."""

    __slots__ = ("_all",)

    def __init__(self, outcomes: Iterable[Any]) -> None:
        self._all = tuple(outcomes)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all)

    def __repr__(self) -> str:
        return f"OutcomeList({list(self._all)!r})"

    def unwrap(self) -> list[Any]:
        """All results; raises `RunFailed` for the first run that did not complete."""
        return [outcome.unwrap() for outcome in self._all]

    @property
    def results(self) -> list[Any]:
        """The results of those that completed."""
        return [outcome.unwrap() for outcome in self._all if outcome.ok]

    @property
    def failed(self) -> list[Any]:
        """Those that did not."""
        return [outcome for outcome in self._all if not outcome.ok]
