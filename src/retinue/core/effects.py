"""What the machine asks the world to do, in the imperative. Performed only after the step that
asked was committed.

Keys name the logical act and never the attempt, so that a repeated act can be recognised by its
receiver."""

from __future__ import annotations

from typing import Literal

from retinue.core.merges import WriterCopy
from retinue.core.messages import ToolCall
from retinue.core.spec import Lane
from retinue.core.values import Ending, Usage, Value

Purpose = Literal["turn", "final", "grace", "summary", "announce", "compact"]


class CallModel(Value):
    """Ask the model for the next reply. The answer must carry the same `attempt`."""

    run: str
    attempt: int
    purpose: Purpose
    max_output: int
    key: str


class ChildOutcome(Value):
    """A child's end as its parent's family sees it."""

    id: str
    label: str
    task: str
    item: int
    ending: Ending
    usage: Usage
    created_at: int
    started_at: int = 0
    depth: int = 0
    max_turns: int | None = None
    model: str = ""
    remark: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether nothing came of it; one that stopped early with a text is none."""
        ending = self.ending
        return ending.state != "completed" and not (
            ending.state == "incomplete" and ending.text.strip()
        )


class CallTool(Value):
    """Run one tool call. `again`: an earlier process may have started it (its class allows to look
    or repeat). `woken`: it has asked to wait, and the wait is over; `back` are the ends of children
    that were not kept. `made_at` is when the model made the call, the same in every try; `answer`
    is what was answered to a question after which it is run again."""

    run: str
    turn: int
    index: int
    call: ToolCall
    key: str
    at: int
    again: bool = False
    woken: bool = False
    back: tuple[ChildOutcome, ...] = ()
    made_at: int = 0
    answer: str | None = None


class AnswerStep(Value):
    """Give the answer to the step that asked: the function of that call, which is parked,
    continues."""

    run: str
    turn: int
    index: int
    step: str
    text: str


class JoinedCall(Value):
    """One open call whose children have all ended, in the order that its family wants. `plain`: its
    family has no words of its own, but what there is to say is too long to be said without keeping
    the whole elsewhere."""

    index: int
    call_id: str
    name: str
    outcomes: tuple[ChildOutcome, ...]
    plain: bool = False


class FormatResults(Value):
    """Put the outcomes of joined children into words."""

    run: str
    turn: int
    calls: tuple[JoinedCall, ...]


class Merge(Value):
    """Merge what writers have changed in their copies into the files of their parent, in this
    order. `key` names it permanently: if it is requested again, it is not done twice. `indices` are
    the calls that wait for it."""

    run: str
    turn: int
    indices: tuple[int, ...]
    copies: tuple[WriterCopy, ...]
    key: str


class AbortRun(Value):
    """Stop whatever is under way for a run: its tools, and its model call. With an `attempt` there
    was one: `Aborted` says whether it had left, and what it has cost."""

    run: str
    attempt: int = 0


class AskSlot(Value):
    """Ask for a slot in a lane that trees share. `Admitted` with the same ticket is the answer, now
    or later."""

    run: str
    lane: Lane
    ticket: int
    back: bool = False


class FreeSlot(Value):
    """The run wants its slot in a lane that trees share, or its place in the queue for one, no
    more."""

    run: str
    lane: Lane


class ScheduleDelivery(Value):
    """A delivery is due at `at`: say `Sent` then."""

    key: str
    at: int


class SendDelivery(Value):
    """Hand a delivery to its channel; the intent is on record."""

    key: str


Effect = (
    CallModel
    | CallTool
    | AnswerStep
    | FormatResults
    | Merge
    | AbortRun
    | AskSlot
    | FreeSlot
    | ScheduleDelivery
    | SendDelivery
)
