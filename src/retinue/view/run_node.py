"""One run of a tree, as far as its steps are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from retinue.core.events import (
    ActionsReturned,
    Answered,
    Decided,
    ModelFailed,
    Replied,
    Submitted,
    TextReturned,
)
from retinue.core.spec import RunSpec
from retinue.core.state import Asking, Ended, Question, Run, Stopping, Thinking
from retinue.core.state_names import ENDS
from retinue.host.provider_waits import ProviderWait
from retinue.view import states
from retinue.view.state_marks import mark_name

ToolResult = TextReturned | ActionsReturned | Submitted
TAIL = 400
"""How much of what a model is writing is kept for the row."""


@dataclass(slots=True)
class RunNode:
    """What is known of one run."""

    spec: RunSpec
    run: Run | None = None
    parent: RunNode | None = None
    children: list[RunNode] = field(default_factory=list)
    calls: dict[int, str] = field(default_factory=dict)
    wanted: dict[int, str] = field(default_factory=dict)
    """What each call of the last reply wants to do."""
    said: str = ""
    """How the last reply began, when it had words."""
    last_call: str = ""
    writing: str = ""
    attempt: int = 0
    replied: int = 0
    questions: dict[str, Question] = field(default_factory=dict)
    asked_of: dict[str, str] = field(default_factory=dict)
    """What is asked about its limits, by the runs that wait there."""
    asks_at: str = ""
    wait: ProviderWait | None = None
    """What it waits for at its provider, after a call of its own has failed."""
    held: ProviderWait | None = None
    """The same, where its call has not left for what others were answered."""
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
    mark: str = "queued"
    seats: tuple[str, ...] = ()
    conflict: str = ""
    """What of its changes did not fit into the files of its parent."""

    @property
    def is_over(self) -> bool:
        return self.state in ENDS

    def is_past(self, event: object) -> bool:
        """Whether the record of the run is newer than an event: who comes late has it with the
        first one."""
        if self.run is None:
            return False
        turn, attempt = getattr(event, "turn", None), getattr(event, "attempt", None)
        return (turn is not None and turn < self.run.turn) or (
            attempt is not None and attempt < self.run.attempt
        )

    def end_call(self, event: Replied | ModelFailed, tries: int) -> None:
        """A model call is over, after so many that failed; a reply ends what it waited for."""
        if self.is_past(event):
            return
        self.writing, self.tries = "", tries
        if isinstance(event, Replied):
            self.wait = self.held = None

    def drop_question(self, event: Answered | Decided | ToolResult) -> None:
        if not self.is_past(event):
            self.questions = {k: q for k, q in self.questions.items() if q.index != event.index}


def state_of(node: RunNode) -> str:
    run = node.run
    if run is None:
        if node.is_gone:
            return "completed"
        return "cancelling" if node.is_cancelling else "queued"
    if isinstance(run.state, Ended):
        return run.state.ending.state
    if node.is_gone:
        return "completed"
    if isinstance(run.state, Stopping) or node.is_cancelling:
        return "cancelling"
    if node.questions and node.spec.request.questions != "deny":
        return "needs_input"
    if node.asked_of:
        return "needs_input"
    if isinstance(run.state, Asking):
        return "waiting" if node.questions else "running"
    if isinstance(run.state, Thinking) and provider_wait(node) is not None:
        return "waiting"
    return states.shown_state(type(run.state).__name__.lower())


def provider_wait(node: RunNode) -> ProviderWait | None:
    """What a run waits for at its provider, if it does."""
    return node.wait or node.held


def mark_of(node: RunNode, state: str) -> str:
    """How a screen marks it (`state_marks.MARKS`)."""
    at = node.run.state if node.run is not None else None
    stop = at.ending.stop if isinstance(at, Ended) else ""
    wait = provider_wait(node)
    if wait is not None and state in ("running", "waiting"):
        return wait.state
    return mark_name(state, stop=stop, is_thinking=isinstance(at, Thinking))


def may_ask(node: RunNode, question: str) -> bool:
    """Whether a run may still ask this, as far as it is known here."""
    return bool(node.asked_of) or any(q.id in ("", question) for q in node.questions.values())


def walk(top: RunNode) -> Iterator[RunNode]:
    todo = [top]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(node.children))
