"""Joined children: who of a call is still out, and who is back."""

from __future__ import annotations

from dataclasses import dataclass, field

from retinue.core.effects import ChildOutcome
from retinue.core.orders import Spec


@dataclass(slots=True)
class Fan:
    """The joined children of one open call: who is still out, and the outcomes of those who are back."""

    join: str
    call_id: str
    name: str
    results: str
    compose: bool
    fail_fast: bool = False
    composing: bool = False
    discard: dict[str, Spec] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    ended: list[ChildOutcome] = field(default_factory=list)

    def in_order(self) -> tuple[ChildOutcome, ...]:
        """Those who are back, as the family asked: by item, or by time of end (ties by id, so that a restart gives the
        same order)."""
        if self.results == "completion":
            return tuple(sorted(self.ended, key=lambda o: (o.ending.at, o.id)))
        return tuple(sorted(self.ended, key=lambda o: o.item))


@dataclass(slots=True)
class FanIn:
    """The fans of a run's current turn by call. `by_turn` counts those that are joined by turn, `out` their children
    that are not back, `composing` those whose results are being put into words."""

    fans: dict[int, Fan] = field(default_factory=dict)
    by_turn: int = 0
    out: int = 0
    composing: int = 0

    def add(self, index: int, fan: Fan) -> None:
        self.fans[index] = fan
        self.by_turn += fan.join == "turn"

    def in_order(self) -> list[Fan]:
        """By call, whatever the order in which they were made, or found after a restart."""
        return [self.fans[index] for index in sorted(self.fans)]

    def drop(self, index: int) -> Fan:
        fan = self.fans.pop(index)
        self.by_turn -= fan.join == "turn"
        self.composing -= fan.composing
        return fan
