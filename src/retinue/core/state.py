"""What a run can be. The row of a run is its `Run`; its `Spec` is written once, its messages are rows of their own.

A run's row stays small whatever its fan-out: open calls are bits, children are counted in the roster, texts are
messages.
"""

from __future__ import annotations

from typing import Literal

from retinue.core.effects import ChildOutcome, Purpose
from retinue.core.values import Artifact, Call, Capabilities, Ending, Grant, Usage, Value, Work

Amounts = tuple[int, int, int, int]
NOTHING: Amounts = (0, 0, 0, 0)


class State(Value, tag=True, tag_field="is"):
    """Base of all states; the tag is the class's name."""


class Queued(State):
    """Waits for lane number `lane` of its lanes and holds those before it. `back`: it has run before."""

    lane: int = 0
    back: bool = False
    ticket: int = 0


class Thinking(State):
    """A model call is under way, or will be at `retry_at`; `hold` is what the ledger keeps for it. `waits_for` says
    what keeps the provider, when the run waits for it."""

    attempt: int
    purpose: Purpose
    hold: Amounts
    max_output: int
    tries: int = 0
    retry_at: int | None = None
    waits_for: str = ""


class Watch(Value):
    """A call that waits for children which it has not joined: when that is over, its tool is run again with `call`, and
    with the ends of those (`back`) that nobody can look up any more, because they are not kept."""

    index: int
    call: Call
    runs: tuple[str, ...]
    first: bool
    until: int
    back: tuple[ChildOutcome, ...] = ()


class Question(Value):
    """What a call waits for: an answer to what its tool asks, or a permission. `id` names exactly this call with
    exactly these arguments."""

    index: int
    id: str
    call_id: str
    text: str
    tool: str = ""
    kind: Literal["question", "permission"] = "question"


class Calls(Value):
    """The calls of the current turn as bits by index: `open` have no result yet, `tools` are being run, `asks` wait for
    an answer from outside. What is open and neither waits for children: joined ones, or those that `waits` names.
    `woken` are run again after such a wait; that takes no slot, for they only look. `questions` has one for each of
    `asks`."""

    message: int
    count: int
    open: int
    tools: int = 0
    asks: int = 0
    woken: int = 0
    waits: tuple[Watch, ...] = ()
    pause: bool = False
    questions: tuple[Question, ...] = ()


class Working(State):
    """Tools are running. It is not `seated` when it gave its slots back to wait for a permission and has it now."""

    calls: Calls
    seated: bool = True


class Waiting(State):
    """Nothing of its own is under way and it holds no slot: joined children (`calls`), or mail, must come first; with
    `all`, the news of the last child that it stays for."""

    calls: Calls | None = None
    all: bool = False


class Asking(State):
    """It waits for an answer from outside and holds no slot."""

    calls: Calls


class Stopping(State):
    """It has its ending and waits for the last child to end; with `all`, also for those that may outlive it."""

    ending: Ending
    all: bool = False


class Ended(State):
    """Terminal."""

    ending: Ending


AnyState = Queued | Thinking | Working | Waiting | Asking | Stopping | Ended


class Breaker(Value):
    """Equal failures in a row under one parent; open until `until`."""

    signature: str
    count: int
    until: int = 0


class Run(Value):
    """The changing part of a run.

    `context` is the token count that the provider last told, `fresh` the bytes since: together an upper bound of the
    next prompt. `said` is the last text, kept for a partial result; `gathered` the beginning of what children have
    reported since. `deaths` counts crashes since its last progress. `grants` are rules by which a person has said yes
    once and for all to something that this tree of runs asks.
    """

    id: str
    state: AnyState
    version: int = 0
    attempt: int = 0
    turn: int = 0
    graced: int = 0
    length: int = 0
    start: int = 0
    context: int = 0
    fresh: int = 0
    empty: int = 0
    reminded: int = 0
    usage: Usage = Usage()
    said: str = ""
    gathered: str = ""
    spilled: tuple[Artifact, ...] = ()
    last_tool: str = ""
    started_at: int | None = None
    deadline: int | None = None
    wake_at: int | None = None
    access: Capabilities | None = None
    model_used: str = ""
    breaker: Breaker | None = None
    finalised: bool = False
    n_children: int = 0
    mail_seq: int = 0
    deaths: int = 0
    restarts: int = 0
    grants: tuple[Grant, ...] = ()
    work: Work | None = None


def is_seated(run: Run) -> bool:
    """Whether the run holds a slot in each of its lanes."""
    return isinstance(run.state, Thinking) or (isinstance(run.state, Working) and run.state.seated)


def calls_of(run: Run | None) -> Calls | None:
    """The calls that a run has open, if it is at any."""
    state = run.state if run is not None else None
    return state.calls if isinstance(state, (Working, Waiting, Asking)) else None


def asks(run: Run) -> bool:
    """Whether the run waits for an answer to what a tool asked."""
    calls = calls_of(run)
    return calls is not None and any(q.kind == "question" for q in calls.questions)
