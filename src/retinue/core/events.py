"""What can happen, in the past tense. An event with its time and its run is one row of the log.

The first group concerns the whole store, the second a tree as a whole, the third one run. Nothing
else changes state: the fold of the log through `Trees.fold` is the state."""

from __future__ import annotations

from typing import Any, Literal

from retinue.core.cache_figures import Tag
from retinue.core.merges import BranchMerge
from retinue.core.messages import Image, ModelReply, ToolCall
from retinue.core.spec import Actions, ForkPoint, RunRequest
from retinue.core.values import (
    BranchWork,
    Definition,
    Limits,
    Mail,
    ModelInfo,
    PermissionGrant,
    Permissions,
    ProviderTrouble,
    Restart,
    Usage,
    Value,
    Who,
)


class Event(Value, tag=True, tag_field="event"):
    """Base of all events; the tag is the class's name, or the older one that the log keeps."""


class OfStore(Event):
    """What concerns the whole store."""


class OfTree(Event):
    """What concerns a tree rather than one live run of it."""


class Opened(OfStore, rename={"limits": "rules"}):
    """A process took the log over. `epoch` fences every earlier one."""

    epoch: int
    limits: Limits


class Closed(OfStore):
    """The process let go of the log in good order: what it left open has not killed it."""


class AgentRegistered(OfStore, tag="Registered"):
    """An agent's definition became known, or changed."""

    definition: Definition


class ModelRegistered(OfStore, tag="Described"):
    """A model's facts became known, or changed."""

    model: ModelInfo


class Requested(OfTree, rename={"request": "order", "permissions": "capabilities"}):
    """A user or program asked for a root run. With a `conversation` it continues where `resumes`
    ended; `base` then says from which message on it is visible, and of how many. `tag` is what its
    first prompt was expected to cost. `news` are the ends of children that earlier runs of the
    conversation left behind and that no run has read."""

    id: str
    request: RunRequest
    permissions: Permissions = Permissions()
    base: ForkPoint | None = None
    conversation: str = ""
    resumes: str = ""
    context: int = 0
    tag: Tag | None = None
    news: tuple[Mail, ...] = ()


class Forgotten(OfStore):
    """A root and everything below it was deleted."""

    root: str


class Sent(OfTree):
    """A delivery was given to its channel, with this text if it had none before."""

    key: str
    text: str = ""
    note: str = ""


class Acked(OfTree):
    """The channel took a delivery."""

    key: str


class Bounced(OfTree):
    """The channel did not take a delivery."""

    key: str
    error: str


class Requeued(OfTree):
    """A person asked for a dead delivery to be sent again."""

    key: str


class Dropped(OfTree):
    """A person gave up on a delivery."""

    key: str


class Broken(OfTree):
    """A step of the tree failed by a defect of ours, and the tree was set aside. The next process
    tries again."""

    error: str


class LimitChanged(OfTree):
    """A person has raised the limits of a run's budget by `add` (tokens, nano-dollars, turns, tool
    calls) and its deadline by `more_ms`, or has changed what happens at its limits. With `question`
    it answers that, and nothing else."""

    add: tuple[int, int, int, int] = (0, 0, 0, 0)
    more_ms: int = 0
    then: Literal["", "land", "ask", "stop"] = ""
    question: str = ""
    by: str = ""
    reason: str = ""


class RunCreated(Event, tag="Enlisted"):
    """The run exists and may ask for its lanes."""


class Admitted(Event):
    """The run was given the slot that it waits for; with its ticket, if the lane is one that trees
    share."""

    ticket: int = 0


class Afforded(Event):
    """What the run waits for in the ledger came back; or so much was spent that there is nothing to
    wait for."""


class Replied(Event):
    """The model answered attempt `attempt` in full. `spilled` names the artifact that holds an
    over-long text, `work` is what an isolated run has done until now. `asks` has a bit for each
    call before which its tool wants a person asked; `refused` has calls that a hook of the
    program does not let run, each by its index and with the reason."""

    attempt: int
    reply: ModelReply
    spilled: tuple[str, int] | None = None
    work: BranchWork | None = None
    asks: int = 0
    refused: tuple[tuple[int, str], ...] = ()


class ModelFailed(Event):
    """Attempt `attempt` came to nothing. `usage` is what it has cost all the same, as far as it is
    known. `trouble` says whose provider it was, and what it answered."""

    attempt: int
    kind: str
    message: str
    retry: bool = False
    after_ms: int = 0
    usage: Usage | None = None
    trouble: ProviderTrouble | None = None


class Aborted(Event):
    """A model call was stopped. It had left, or not; `usage` is what it has cost, None if
    unknown."""

    attempt: int
    sent: bool = True
    usage: Usage | None = None


class TextReturned(Event, tag="ToolReturned"):
    """A tool finished with a text. `spilled` names the artifact behind a cut text."""

    turn: int
    index: int
    call_id: str
    name: str
    text: str
    error: bool = False
    images: tuple[Image, ...] = ()
    spilled: tuple[str, int] | None = None


class ActionsReturned(Event, tag="Ordered", rename={"actions": "orders"}):
    """A tool finished by returning actions. `asked_at` is when the call was made: it is part of the
    children's names. `place` is where the run really works, when that is not where it was sent.
    `snapshot` is the commit with its files as they were then, if children can have copies of
    them."""

    turn: int
    index: int
    call_id: str
    name: str
    actions: Actions
    asked_at: int = 0
    place: str = ""
    snapshot: str = ""


class StepTaken(Event):
    """The function of a tool has come to a step that it wants to be on record before it takes
    effect: children, each with a name within the call (`children`), messages and cancels (with
    their `reason`), a `question`, a wait for the `run` that it has started; or, with `result`, how
    a wait ended that no other record has. `parks`: the function does nothing of its own until it is
    over."""

    turn: int
    index: int
    call_id: str
    name: str
    step: str
    actions: Actions = Actions()
    children: tuple[str, ...] = ()
    question: str = ""
    choices: tuple[str, ...] = ()
    run: str = ""
    result: str | None = None
    reason: str = ""
    parks: bool = False
    asked_at: int = 0
    place: str = ""
    snapshot: str = ""


class Submitted(Event):
    """The run submitted its result through a submit tool, and the result was valid."""

    turn: int
    index: int
    call_id: str
    name: str
    text: str
    ok: bool = True
    data: Any = None
    spilled: tuple[str, int] | None = None
    work: BranchWork | None = None


class Asked(Event):
    """A tool needs an answer from outside before it can finish. With `again` it is run again with
    the answer, and with these arguments."""

    turn: int
    index: int
    call_id: str
    name: str
    question: str
    choices: tuple[str, ...] = ()
    again: str | None = None


class Answered(Event):
    """An open question was answered: that of the call, or `question` of those that its steps
    ask."""

    turn: int
    index: int
    call_id: str
    text: str
    question: str = ""
    by: str = ""


class Decided(Event):
    """A person allowed or denied an open call. `call` is what was shown; with `always`, equal calls
    in this tree are permitted from now on."""

    question: str
    turn: int
    index: int
    call: ToolCall
    allow: bool
    by: str = ""
    reason: str = ""
    always: bool = False


class Granted(Event):
    """A person said yes once and for all."""

    grant: PermissionGrant


class ResultsFormatted(Event, tag="Composed"):
    """A family put the outcomes of joined children into words: one text for each of `calls`."""

    turn: int
    calls: tuple[tuple[int, str, str, str], ...]
    error: bool = False


class Merged(Event):
    """What became of the changes of writers that worked in copies; the calls of `indices` waited
    for it."""

    turn: int
    indices: tuple[int, ...]
    merges: tuple[BranchMerge, ...]


class ChildEnded(Event):
    """A child reached its end; its own row says how."""

    child: str


class MailReceived(Event, tag="Posted"):
    """A message reached the run's mailbox."""

    mail: Mail


class CancelAsked(Event):
    """The run and everything below it is to end. `by` is the run that asks for it, if one does;
    `along`: it has ended itself."""

    by: str = ""
    reason: str = ""
    who: Who = ""
    along: bool = False


class PermissionsRestricted(Event, tag="Narrowed", rename={"permissions": "access"}):
    """The run's capabilities were cut down; what is below it follows at its next call."""

    permissions: Permissions


class Prolonged(Event):
    """The deadline was moved: that of the run whose limit it is, and of all runs below it that have
    it from there."""

    deadline: int
    until: int


class Woke(Event):
    """The time that the run had asked for has come; or, `early`, there is a reason not to wait for
    its provider any longer: another key was brought, or a person says so."""

    early: bool = False


class InterruptedCall(Value):
    """A call that was under way when the process died, with its tool's restart class of today."""

    index: int
    call: ToolCall
    restart: Restart


class Recovered(Event):
    """A new process found the run open, at this turn and with this attempt as its last: news that
    reached it since then may have moved it on. `clean`: the process before it has not died.
    `alone`: of all runs suspected of having crashed the process, only this one is resumed now.
    `unsent` are attempts that are known never to have left. `handed_over`: another worker of a
    cluster had it, and let go of it or was cut off; that is not counted as a restart."""

    epoch: int
    turn: int = 0
    attempt: int = 0
    clean: bool = False
    alone: bool = False
    calls: tuple[InterruptedCall, ...] = ()
    unsent: tuple[int, ...] = ()
    handed_over: bool = False


class Cleared(Event):
    """The run was under suspicion, was at work for a while, and the process lived."""


StoreEvent = Opened | Closed | AgentRegistered | ModelRegistered | Forgotten
TreeEvent = Requested | Broken | LimitChanged | Sent | Acked | Bounced | Requeued | Dropped
StateEvent = (
    RunCreated
    | Admitted
    | Afforded
    | Replied
    | ModelFailed
    | TextReturned
    | ActionsReturned
    | StepTaken
    | Submitted
    | Asked
    | Answered
    | Decided
    | Granted
    | ResultsFormatted
    | Merged
    | ChildEnded
    | MailReceived
    | CancelAsked
    | PermissionsRestricted
    | Prolonged
    | Woke
    | Recovered
    | Cleared
)
"""What each state decides about."""
RunEvent = StateEvent | Aborted
ActionEvent = ActionsReturned | StepTaken
"""What children can come of."""
AnyEvent = StoreEvent | TreeEvent | RunEvent


class LogEntry(Value):
    """One row of the log. `tree` is the root of the tree that it belongs to, "" for what concerns
    the whole store. `stale` events were refused by the machine and changed nothing."""

    run: str
    at: int
    event: AnyEvent
    tree: str = ""
    stale: str = ""
