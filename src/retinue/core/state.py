"""The states of a run. The row of a run is its `Run`; its `Spec` is written once, its messages are
rows of their own.

A run's row stays small whatever its fan-out: open calls are bits, children are counted in the tree,
texts are messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Literal, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from retinue.core.cache_figures import Cached
from retinue.core.effects import ChildOutcome, Purpose
from retinue.core.messages import ToolCall
from retinue.core.spec import RunSpec
from retinue.core.values import (
    Artifact,
    BranchWork,
    Ending,
    Helpers,
    PermissionGrant,
    Permissions,
    ProviderTrouble,
    Restart,
    Usage,
    Value,
)

T = TypeVar("T")
Amounts = tuple[int, int, int, int]
"""Tokens, nano-dollars, turns and tool calls, in this order."""
NOTHING: Amounts = (0, 0, 0, 0)


class ByDimension(NamedTuple, Generic[T]):
    """Amounts whose parts are read by name."""

    tokens: T
    nanos: T
    turns: T
    calls: T


def four(values: Iterable[T]) -> tuple[T, T, T, T]:
    """One value for each dimension."""
    return cast("tuple[T, T, T, T]", tuple(values))


class State(Value, tag=True, tag_field="is"):
    """Base of all states; the tag is the class's name."""


class Kept(Value):
    """What a run that waits for its turn knows of the call that it will make then: its place in
    line for the budget (0 when it had none yet), how often it was tried, and until when it is
    patient with its provider."""

    ticket: int = 0
    tries: int = 0
    patient_until: int | None = None


NEW_CALL = Kept()


class Queued(State):
    """Waits for lane number `lane` of its lanes and holds those before it; before all of them, for
    its turn to write (`writers.TURN`). `back`: it has run before, and continues with a call of this
    purpose."""

    lane: int = 0
    back: bool = False
    ticket: int = 0
    purpose: Purpose = "turn"
    kept: Kept = NEW_CALL


class Thinking(State):
    """A model call is under way, or will be at `retry_at`; `hold` is what the ledger keeps for it.
    `waits_for` says what keeps the provider, after `tries` that failed, in words, `waits_kind` of
    what kind that is, and `trouble` what it answered. After the last quick try it waits until
    `patient_until` at the latest. The provider's cache should have `expected` tokens of the
    prompt."""

    attempt: int
    purpose: Purpose
    hold: Amounts
    max_output: int
    tries: int = 0
    retry_at: int | None = None
    waits_for: str = ""
    waits_kind: str = ""
    patient_until: int | None = None
    expected: int = 0
    trouble: ProviderTrouble | None = None


class Short(State):
    """It waits at `account` until others of its tree have given back what they hold: then it can
    hold what its next call may cost (`need`, and `last` for a last turn after it if the account is
    its own). `lack` is the amount that there is too little of. With `asks` too much of it is spent,
    and a person was asked, in these words, what is to be done; `more` would be enough for this run.
    It holds no slot."""

    purpose: Purpose
    account: str
    lack: str
    need: Amounts
    last: Amounts = NOTHING
    kept: Kept = NEW_CALL
    asks: str = ""
    more: int = 0


class BrokenOff(Value):
    """A model call that is stopped and whose cost is not known yet; `hold` is what the ledger keeps
    for it."""

    attempt: int
    hold: Amounts
    expected: int = 0


class CallWait(Value):
    """A call that waits for children which it has not joined: when that is over, its tool is run
    again with `call`, and with the ends of those (`back`) that can no longer be looked up, because
    they are not kept."""

    index: int
    call: ToolCall
    runs: tuple[str, ...]
    first: bool
    until: int
    back: tuple[ChildOutcome, ...] = ()


class CallStep(Value):
    """A step that the function of a call has taken, and that has no child: what it has sent,
    cancelled or asked, and for which `run` it waits. `text` is what it returned, None as long as
    that is open."""

    index: int
    key: str
    run: str = ""
    text: str | None = None


class LostCall(Value):
    """A call whose function was parked when its process died. What it waited for comes first; then
    it is run again, or closed, by its tool's restart class."""

    index: int
    call: ToolCall
    restart: Restart


class Question(Value):
    """What a call waits for: an answer to what its tool asks, or a permission. `id` names exactly
    this call with exactly these arguments. The answer goes to the `step` that asks, or `call` is
    run again with it; it is the call's result when there is neither."""

    index: int
    id: str
    call_id: str
    text: str
    tool: str = ""
    kind: Literal["question", "permission"] = "question"
    choices: tuple[str, ...] = ()
    step: str = ""
    call: ToolCall | None = None


class OpenCalls(Value):
    """The calls of the current turn as bits by index: `open` have no result yet, `tools` are being
    run, `asks` wait for an answer from outside. What is open and neither waits for children: joined
    ones, or those that `waits` names. `woken` are run again after such a wait; that takes no slot,
    for they only look. `questions` has one or more for each of `asks`. `merged` are those whose
    children's changes are merged, or kept on branches.

    `at` is when they were made. `parked` are those whose function awaits a step; `woken` also has
    those whose function continues after one. `steps` are on record, `items` counts the children of
    calls that can order more, and `lost` waits to be resumed after a restart (`tool_steps`)."""

    message: int
    count: int
    open: int
    tools: int = 0
    asks: int = 0
    woken: int = 0
    waits: tuple[CallWait, ...] = ()
    pause: bool = False
    questions: tuple[Question, ...] = ()
    merged: int = 0
    at: int = 0
    parked: int = 0
    items: tuple[tuple[int, int], ...] = ()
    steps: tuple[CallStep, ...] = ()
    lost: tuple[LostCall, ...] = ()


class Working(State, rename={"has_slots": "seated"}):
    """Tools are running. It has no slots when it gave them back to wait for a permission and has
    it now."""

    calls: OpenCalls
    has_slots: bool = True


class Waiting(State):
    """Nothing of its own is under way and it holds no slot: joined children (`calls`), or mail,
    must come first; with `all`, the news of the last child that it stays for."""

    calls: OpenCalls | None = None
    all: bool = False


class Asking(State):
    """It waits for an answer from outside and holds no slot."""

    calls: OpenCalls


class Stopping(State):
    """It has its ending and waits for the last child to end; with `all`, also for those that may
    outlive it."""

    ending: Ending
    all: bool = False


class Ended(State):
    """Terminal."""

    ending: Ending


AnyState = Queued | Thinking | Short | Working | Waiting | Asking | Stopping | Ended


class Breaker(Value):
    """Equal failures in a row under one parent, each call counted once, whichever of its children
    failed; open until `until`. `calls` are those that are counted."""

    signature: str
    count: int
    until: int = 0
    calls: tuple[str, ...] = ()


class Suspicion(Value):
    """What is held against a run since its last progress: it was in flight at so many deaths of the
    process, at `alone` of them, in a row, as the only suspect; it was `cleared` so often since.
    `on_trial`: it was resumed as the only suspect. See `suspects`."""

    deaths: int = 0
    alone: int = 0
    cleared: int = 0
    on_trial: bool = False


STORED_RUN = {
    "permissions": "access",
    "last_text": "said",
    "child_texts": "gathered",
    "artifacts": "spilled",
    "new_bytes": "fresh",
    "grace_turns_used": "graced",
    "has_had_last_turn": "finalised",
}
"""What fields of a run are called in JSON."""


class Run(Value, rename=STORED_RUN):
    """The changing part of a run.

    `context` is the token count that the provider last reported, `new_bytes` the bytes since:
    together an upper bound of the next prompt. `prompt` is what the provider last counted of a
    prompt, which its cache should have until `warm_until`; `cache` is what caches were expected to
    give, and gave. `last_text` is kept for a partial result; `child_texts` is the beginning of what
    children have reported since. `epoch` is that of the process that has started it or taken it up.
    `grants` are rules by which a person has said yes once and for all to something that this tree
    of runs asks. `defect` is ours: why its tree was set aside. `lacks_calls`: a call of its last
    reply was not made because the budget of calls was spent. `helpers` counts the sub-agents whose
    results are incomplete; its own complete children are not in it before the end, because
    `n_children` has them."""

    id: str
    state: AnyState
    version: int = 0
    attempt: int = 0
    turn: int = 0
    grace_turns_used: int = 0
    length: int = 0
    start: int = 0
    context: int = 0
    new_bytes: int = 0
    prompt: int = 0
    warm_until: int = 0
    cache: Cached = Cached()
    empty: int = 0
    reminded: int = 0
    rejected: int = 0
    n_cut: int = 0
    told_short: bool = False
    lacks_calls: bool = False
    usage: Usage = Usage()
    last_text: str = ""
    child_texts: str = ""
    artifacts: tuple[Artifact, ...] = ()
    last_tool: str = ""
    started_at: int | None = None
    deadline: int | None = None
    wake_at: int | None = None
    permissions: Permissions | None = None
    model_used: str = ""
    breaker: Breaker | None = None
    has_had_last_turn: bool = False
    n_children: int = 0
    mail_seq: int = 0
    epoch: int = 0
    suspicion: Suspicion | None = None
    restarts: int = 0
    grants: tuple[PermissionGrant, ...] = ()
    work: BranchWork | None = None
    defect: str = ""
    broken_off: tuple[BrokenOff, ...] = ()
    helpers: Helpers = Helpers()


class RunRecord(NamedTuple):
    """A run as it is stored: what was asked for, and how far it has come."""

    spec: RunSpec
    run: Run


REFUSALS = ("auth", "quota")
"""What a provider refuses to a whole account: it is not cured by asking again."""


def ending_of(run: Run) -> Ending | None:
    """How a run ended, or None while it is live."""
    return run.state.ending if isinstance(run.state, Ended) else None


def account_refusal(run: Run) -> str:
    """Why the provider refuses the account of a run that waits for it: one of REFUSALS, "" when it
    does not."""
    if not isinstance(run.state, Thinking) or run.state.retry_at is None:
        return ""
    return run.state.waits_kind if run.state.waits_kind in REFUSALS else ""


def attempts_of(run: Run) -> tuple[int, ...]:
    """The model calls of a run that are under way, or stopped and not paid for."""
    stopped = tuple(lost_call.attempt for lost_call in run.broken_off)
    is_asked = isinstance(run.state, Thinking) and run.state.retry_at is None
    return (*stopped, run.attempt) if is_asked else stopped


def holds_slots(run: Run) -> bool:
    """Whether the run holds a slot in each of its lanes."""
    return isinstance(run.state, Thinking) or (
        isinstance(run.state, Working) and run.state.has_slots
    )


MOVING = frozenset((Thinking, Short, Working, Stopping))
"""States in which a run always makes progress by itself; fast to check at every step."""
QUIET = frozenset((Queued, Thinking, Stopping, Ended))
"""States in which nothing is asked."""


def is_moving(run: Run, questions: str, *, is_composing: bool) -> bool:
    """Whether the run makes progress by itself, without results from its children and without mail:
    also while the results of its children are being formatted. A person who was asked is trusted to
    answer; the parent that was asked may wait for this very run."""
    match run.state:
        case Waiting(calls=calls):
            return calls is not None and (is_composing or bool(calls.waits or calls.woken))
        case Asking():
            return questions != "deny"
        case Ended():
            return False
        case Queued(lane=lane):
            return lane >= 0  # a turn to write comes from another run
        case _:
            return True


def calls_of(run: Run | None) -> OpenCalls | None:
    """The calls that a run has open, if it is at any."""
    state = run.state if run is not None else None
    return state.calls if isinstance(state, (Working, Waiting, Asking)) else None


def n_items(run: Run, index: int) -> int:
    """How many children a call has ordered before."""
    calls = calls_of(run)
    return dict(calls.items).get(index, 0) if calls is not None and calls.items else 0


def count_items(calls: OpenCalls, index: int, n: int) -> OpenCalls:
    """A call that can order more has ordered so many."""
    counts = dict(calls.items)
    counts[index] = counts.get(index, 0) + n
    return replace(calls, items=tuple(sorted(counts.items())))


def questions_of(run: Run | None) -> tuple[Question, ...]:
    """What a run asks, oldest call first."""
    calls = calls_of(run)
    return () if calls is None else calls.questions


def has_questions(state: State) -> bool:
    """Whether there are `questions_of` its run, or a limit is asked about; fast to check at every
    step."""
    calls: OpenCalls | None = getattr(state, "calls", None)
    return (
        bool(calls.questions)
        if calls is not None
        else isinstance(state, Short) and bool(state.asks)
    )


def limit_in_question(run: Run | None) -> tuple[str, str] | None:
    """The account and the amount about which a person was asked for this run, while it waits for
    the answer."""
    state = run.state if run is not None else None
    return (state.account, state.lack) if isinstance(state, Short) and state.asks else None


def asks(run: Run) -> bool:
    """Whether the run waits for an answer to what a tool asked."""
    calls = calls_of(run)
    return calls is not None and any(q.kind == "question" for q in calls.questions)
