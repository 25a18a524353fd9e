"""Joined children of a call: which are still running, and which have ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from retinue.core.effects import ChildOutcome
from retinue.core.spec import RunRequest, RunSpec


@dataclass(slots=True)
class Fan:
    """The joined children of one open call: who is still out, and the outcomes of those who are
    back. `copies` are those whose changes are to be merged."""

    join: str
    call_id: str
    name: str
    results: str
    compose: bool
    fail_fast: bool = False
    aggregate: str = "call"
    while_waiting: str = "keep"
    composing: bool = False
    discard: dict[str, RunSpec] = field(default_factory=dict)
    copies: dict[str, RunSpec] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    ended: list[ChildOutcome] = field(default_factory=list)

    def in_order(self) -> tuple[ChildOutcome, ...]:
        """Those who are back, as the family asked: by item, or by time of end (ties by id, so that
        a restart gives the same order)."""
        if self.results == "completion":
            return by_end(self.ended)
        return tuple(sorted(self.ended, key=lambda o: o.item))


def by_end(outcomes: Iterable[ChildOutcome]) -> tuple[ChildOutcome, ...]:
    return tuple(sorted(outcomes, key=lambda o: (o.ending.at, o.id)))


def fan_of(request: RunRequest, call_id: str, name: str) -> Fan:
    """The fan of a call whose children have a request like this one."""
    return Fan(
        join=request.join,
        call_id=call_id,
        name=name,
        results=request.result_order,
        compose=request.format_results,
        fail_fast=request.fail_fast,
        aggregate=request.aggregate if request.join == "turn" else "call",
        while_waiting=request.while_waiting,
    )


@dataclass(slots=True)
class FanIn:
    """The fans of a run's current turn by call. `by_turn` counts those that are joined by turn,
    `out` their children that are not back, `composing` those whose results are being put into
    words, or whose changes are being merged. `merging_since` is the epoch of the process that was
    asked to merge."""

    fans: dict[int, Fan] = field(default_factory=dict)
    by_turn: int = 0
    out: int = 0
    composing: int = 0
    is_merging: bool = False
    merging_since: int = 0

    def add(self, index: int, fan: Fan) -> None:
        self.fans[index] = fan
        self.by_turn += fan.join == "turn"

    def in_order(self) -> list[Fan]:
        """By call, whatever the order in which they were made, or found after a restart."""
        return [self.fans[index] for index in sorted(self.fans)]

    def together(self, index: int) -> list[int]:
        """The calls whose results are in one tool result with those of this one, itself
        included."""
        fan = self.fans[index]
        if fan.aggregate == "call":
            return [index]
        return sorted(
            i for i, f in self.fans.items() if (f.aggregate, f.name) == (fan.aggregate, fan.name)
        )

    def outcomes(self, indices: list[int]) -> tuple[ChildOutcome, ...]:
        """The ended children of these calls, in the order that the calls want."""
        fans = [self.fans[i] for i in indices]
        members = tuple(o for fan in fans for o in fan.in_order())
        return by_end(members) if fans[0].results == "completion" else members

    @property
    def refuses_mail(self) -> bool:
        """Whether the run accepts no messages before its children have ended."""
        return any(
            fan.while_waiting == "refuse" and (fan.pending or fan.composing)
            for fan in self.fans.values()
        )

    def drop(self, index: int) -> Fan:
        fan = self.fans.pop(index)
        self.by_turn -= fan.join == "turn"
        self.composing -= fan.composing
        return fan
