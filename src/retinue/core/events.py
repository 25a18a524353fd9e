"""What can happen, in the past tense. An event with its time and its run is one row of the log.

The first group concerns the whole roster (its run is ""), the second one run. Nothing else changes state: the fold of
the log through `machine.fold` is the state.
"""

from __future__ import annotations

from typing import Any

from retinue.core.orders import Base, Order, Orders
from retinue.core.values import (
    Call,
    Capabilities,
    Definition,
    Grant,
    Image,
    Mail,
    ModelInfo,
    Reply,
    Restart,
    Rules,
    Value,
    Work,
)


class Event(Value, tag=True, tag_field="event"):
    """Base of all events; the tag is the class's name."""


class Opened(Event):
    """A process took the log over. `epoch` fences every earlier one."""

    epoch: int
    rules: Rules


class Closed(Event):
    """The process let go of the log in good order: what it left open has not killed it."""


class Registered(Event):
    """An agent's definition became known, or changed."""

    definition: Definition


class Described(Event):
    """A model's facts became known, or changed."""

    model: ModelInfo


class Requested(Event):
    """Somebody outside asked for a root run. With a `conversation` it goes on where `resumes` ended; `base` then says
    from which message on it is visible, and of how many."""

    id: str
    order: Order
    capabilities: Capabilities = Capabilities()
    base: Base | None = None
    conversation: str = ""
    resumes: str = ""
    context: int = 0


class Forgotten(Event):
    """A root and everything below it was deleted."""

    root: str


class Sent(Event):
    """A delivery was handed to its channel, in these words if it had none before."""

    key: str
    text: str = ""


class Acked(Event):
    """The channel took a delivery."""

    key: str


class Bounced(Event):
    """The channel did not take a delivery."""

    key: str
    error: str


class Requeued(Event):
    """A person asked for a dead delivery to be sent again."""

    key: str


class Dropped(Event):
    """A person gave up on a delivery."""

    key: str


class Enlisted(Event):
    """The run exists and may ask for its lanes."""


class Admitted(Event):
    """The run holds a slot in each of its lanes."""


class Replied(Event):
    """The model answered attempt `attempt` in full. `spilled` names the artifact that holds an over-long text, `work`
    is what an isolated run has done until now."""

    attempt: int
    reply: Reply
    spilled: tuple[str, int] | None = None
    work: Work | None = None


class ModelFailed(Event):
    """Attempt `attempt` came to nothing."""

    attempt: int
    kind: str
    message: str
    retry: bool = False
    after_ms: int = 0


class ToolReturned(Event):
    """A tool finished with a text. `spilled` names the artifact behind a cut text."""

    turn: int
    index: int
    call_id: str
    name: str
    text: str
    error: bool = False
    images: tuple[Image, ...] = ()
    spilled: tuple[str, int] | None = None


class Ordered(Event):
    """A tool finished by giving orders. `asked_at` is when the call was made: it is part of the children's names.
    `place` is where the run really works, when that is not where it was sent."""

    turn: int
    index: int
    call_id: str
    name: str
    orders: Orders
    asked_at: int = 0
    place: str = ""


class Submitted(Event):
    """The run handed in its result through a submit tool, and the result was valid."""

    turn: int
    index: int
    call_id: str
    name: str
    text: str
    ok: bool = True
    data: Any = None
    spilled: tuple[str, int] | None = None
    work: Work | None = None


class Asked(Event):
    """A tool needs an answer from outside before it can finish."""

    turn: int
    index: int
    call_id: str
    name: str
    question: str


class Answered(Event):
    """Somebody answered an open question."""

    turn: int
    index: int
    call_id: str
    text: str


class Decided(Event):
    """Somebody permitted an open call, or did not. `call` is what was shown; with `always`, equal calls in this tree
    are permitted from now on."""

    question: str
    turn: int
    index: int
    call: Call
    allow: bool
    by: str = ""
    reason: str = ""
    always: bool = False


class Granted(Event):
    """A person said yes once and for all."""

    grant: Grant


class Composed(Event):
    """A family put the outcomes of joined children into words: one text for each of `calls`."""

    turn: int
    calls: tuple[tuple[int, str, str, str], ...]
    error: bool = False


class ChildEnded(Event):
    """A child reached its end; its own row says how."""

    child: str


class Posted(Event):
    """A message reached the run's mailbox."""

    mail: Mail


class CancelAsked(Event):
    """Somebody wants the run and everything below it to end."""

    by: str = ""
    reason: str = ""


class Narrowed(Event):
    """The run's capabilities were cut down; what is below it follows at its next call."""

    access: Capabilities


class Woke(Event):
    """The time that the run had asked for has come."""


class OpenCall(Value):
    """A call that was under way when the process died, with its tool's restart class of today."""

    index: int
    call: Call
    restart: Restart


class Recovered(Event):
    """A new process found the run open, at this turn and with this attempt as its last: news that reached it since then
    may have moved it on."""

    epoch: int
    turn: int = 0
    attempt: int = 0
    clean: bool = False
    calls: tuple[OpenCall, ...] = ()


RosterEvent = (
    Opened | Closed | Registered | Described | Requested | Forgotten | Sent | Acked | Bounced | Requeued | Dropped
)
RunEvent = (
    Enlisted
    | Admitted
    | Replied
    | ModelFailed
    | ToolReturned
    | Ordered
    | Submitted
    | Asked
    | Answered
    | Decided
    | Granted
    | Composed
    | ChildEnded
    | Posted
    | CancelAsked
    | Narrowed
    | Woke
    | Recovered
)
AnyEvent = RosterEvent | RunEvent


class Entry(Value):
    """One row of the log. `stale` events were refused by the machine and changed nothing."""

    run: str
    at: int
    event: AnyEvent
    stale: str = ""
