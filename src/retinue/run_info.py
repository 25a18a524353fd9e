"""A run in a listing and in a tree: its task, its state or outcome, its cost, and its branch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal, cast

import msgspec

from retinue.core.merges import BranchMerge
from retinue.core.state import (
    Asking,
    Queued,
    Run,
    RunRecord,
    Short,
    Stopping,
    Thinking,
    Waiting,
    ending_of,
)
from retinue.core.state_names import ENDS
from retinue.core.type_parameters import RunId
from retinue.core.values import BranchWork, Origin, Usage, Value

RunState = Literal[
    "queued",
    "thinking",
    "working",
    "waiting",
    "asking",
    "completed",
    "incomplete",
    "failed",
    "timed_out",
    "cancelled",
    "interrupted",
]
WaitingFor = Literal["children", "message", "question", "budget", "provider", "lane", "agent"]
"""What a run waits for that has nothing of its own under way."""
_SAME = ("queued", "thinking", "working", "waiting", "asking", *ENDS)
PUBLIC_STATES = {name: name for name in _SAME} | {"short": "waiting", "stopping": "working"}
"""States of the machine, and what programs see."""


class RunInfo(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"created_ms": "created_at", "ended_ms": "ended_at"},
):
    """One run in a listing. `usage` is its own. Times are `datetime` in UTC; in JSON they are
    milliseconds since the epoch. `group` is the group of background work that it belongs to."""

    id: RunId[Any]
    root: RunId[Any]
    parent: RunId[Any] | None
    agent: str
    label: str
    task: str
    state: RunState
    waiting_for: WaitingFor | None
    turn: int
    usage: Usage
    origin: Origin
    meta: dict[str, str]
    created_ms: int
    ended_ms: int | None
    group: str = ""

    @property
    def created_at(self) -> datetime:
        return as_time(self.created_ms)

    @property
    def ended_at(self) -> datetime | None:
        return None if self.ended_ms is None else as_time(self.ended_ms)


class RunTree(RunInfo, frozen=True, kw_only=True):
    """A run in a tree, with everything below it."""

    children: tuple[RunTree, ...]

    def walk(self, depth: int = 0) -> Iterator[tuple[int, RunTree]]:
        """Every run of the tree with its depth, parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


def as_time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def info_fields(row: RunRecord, *, has_agent: bool = True) -> dict[str, Any]:
    """What a listing says of a run. One whose agent is not known to this program waits for it."""
    spec, run, ending = row.spec, row.run, ending_of(row.run)
    wait = waiting_for(run)
    waits_for = wait[0] if wait else None
    if not has_agent and not ending:
        waits_for = "agent"
    state = ending.state if ending else type(run.state).__name__.lower()
    return {
        "id": RunId[Any](spec.id),
        "root": RunId[Any](spec.root),
        "parent": RunId[Any](spec.parent) if spec.parent else None,
        "agent": spec.request.agent,
        "label": spec.request.label or spec.request.agent,
        "task": spec.request.task,
        "state": cast(RunState, PUBLIC_STATES[state]),
        "waiting_for": waits_for,
        "turn": run.turn,
        "usage": run.usage,
        "origin": spec.origin,
        "meta": spec.meta,
        "created_ms": spec.created_at,
        "ended_ms": ending.at if ending else None,
        "group": spec.request.shown_group,
    }


def waiting_for(run: Run) -> tuple[WaitingFor, str] | None:
    """What a run waits for, and in words what that is; None when it is at work, or has ended."""
    match run.state:
        case Queued():
            return "lane", "its turn to write"
        case Short(asks=asks, lack=lack):
            return "budget", asks or f"Others of its tree hold the {lack} that it needs."
        case Thinking(retry_at=at, patient_until=until, waits_for=why) if (
            at is not None and until is not None
        ):
            return "provider", why
        case Asking(calls=calls):
            return "question", calls.questions[0].text if calls.questions else ""
        case Waiting(calls=None, all=False):
            return "message", ""
        case Waiting() | Stopping():
            return "children", ""
        case _:
            return None


class RunBranch(Value):
    """The copy of one run. `open`: the run is at work in it; `kept`: its changes are on `branch`;
    `gone`: there was nothing to keep, or it is merged. `work` is what the run had done when it
    ended, if it had done anything. `merge` is what would become of a kept branch if all that are
    kept were merged now, oldest first."""

    run: str
    label: str
    branch: str
    place: str
    state: Literal["open", "kept", "gone"]
    work: BranchWork | None = None
    merge: BranchMerge | None = None
