"""One run of a tree, as far as steps have told of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from retinue.core.spec import Spec
from retinue.core.state import Asking, Ended, Question, Run, Stopping
from retinue.view import states as phrases

OVER = ("completed", "incomplete", "failed", "timed_out", "cancelled", "interrupted")
TAIL = 400
"""How much of what a model is writing is kept for the row."""


@dataclass(slots=True)
class RunNode:
    """What is known of one run."""

    spec: Spec
    run: Run | None = None
    parent: RunNode | None = None
    children: list[RunNode] = field(default_factory=list)
    calls: dict[int, str] = field(default_factory=dict)
    last_call: str = ""
    writing: str = ""
    attempt: int = 0
    replied: int = 0
    questions: dict[str, Question] = field(default_factory=dict)
    asked_of: dict[str, str] = field(default_factory=dict)
    """What is asked about its limits, by the runs that wait there."""
    asks_at: str = ""
    trouble: str = ""
    trouble_kind: str = ""
    retry_at: int | None = None
    tries: int = 0
    last_at: int = 0
    started_at: int | None = None
    is_cancelling: bool = False
    is_gone: bool = False
    is_taken_up: bool = False
    tokens: int = 0
    nanos: int = 0
    tree_tokens: int = 0
    tree_nanos: int = 0
    guess: tuple[int, int] = (0, 0)
    tree_guess: tuple[int, int] = (0, 0)
    n_unpriced: int = 0
    is_unpriced: bool = False
    n_over: int = 0
    state: str = "queued"
    seats: tuple[str, ...] = ()


def state_of(node: RunNode) -> str:
    run = node.run
    if run is None:
        return "completed" if node.is_gone else "cancelling" if node.is_cancelling else "queued"
    if isinstance(run.state, Ended):
        return run.state.ending.state
    if node.is_gone:
        return "completed"
    if isinstance(run.state, Stopping) or node.is_cancelling:
        return "cancelling"
    if node.questions and node.spec.order.questions != "deny":
        return "needs_input"
    if node.asked_of:
        return "needs_input"
    if isinstance(run.state, Asking):
        return "waiting" if node.questions else "running"
    return phrases.shown_state(type(run.state).__name__.lower())


def is_asked(node: RunNode, question: str) -> bool:
    """Whether a run may still ask this, as far as it is known here."""
    return bool(node.asked_of) or any(q.id in ("", question) for q in node.questions.values())


def walk(top: RunNode) -> Iterator[RunNode]:
    todo = [top]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(node.children))
