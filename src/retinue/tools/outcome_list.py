"""Outcomes of several runs, in the order of their tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

from retinue.core.type_parameters import T_co

if TYPE_CHECKING:
    from retinue.outcomes import Outcome


class Outcomes(Sequence["Outcome[T_co]"]):
    """What `gather` returns: outcomes in the order of the tasks. A run that failed is in it like
    any other."""

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Iterable[Outcome[T_co]]) -> None:
        self._outcomes = tuple(outcomes)

    @overload
    def __getitem__(self, index: int) -> Outcome[T_co]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Outcome[T_co]]: ...
    def __getitem__(self, index: int | slice) -> Outcome[T_co] | Sequence[Outcome[T_co]]:
        return self._outcomes[index]

    def __iter__(self) -> Iterator[Outcome[T_co]]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        return f"Outcomes({list(self._outcomes)!r})"

    def unwrap(self) -> list[T_co]:
        """All results; raises `RunFailed` for the first run that did not complete."""
        return [outcome.unwrap() for outcome in self._outcomes]

    @property
    def results(self) -> list[T_co]:
        """The results of those that completed."""
        return [outcome.unwrap() for outcome in self._outcomes if outcome.ok]

    @property
    def failed(self) -> list[Outcome[T_co]]:
        """Those that did not."""
        return [outcome for outcome in self._outcomes if not outcome.ok]
