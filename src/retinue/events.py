"""What happens in a tree, for programs that watch with `Retinue.stream` and `Retinue.watch`.

A small, stable set. Fields and types are only ever added, so a program skips types that it does not
know. The log of the runtime is finer and may change; these do not."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal

import msgspec

from retinue.core.messages import ToolCall
from retinue.core.type_parameters import RunId
from retinue.core.values import EndState, Usage, Value
from retinue.question_types import Question
from retinue.run_info import WaitingFor

__all__ = [
    "Announced",
    "Event",
    "MessageReceived",
    "ModelReplied",
    "ModelRetried",
    "QuestionAnswered",
    "QuestionAsked",
    "RunEnded",
    "RunStarted",
    "RunWaiting",
    "TextDelta",
    "ToolReturned",
    "ToolStarted",
    "WaitingFor",
    "to_json",
    "to_sse",
]


class _Event(Value, tag_field="type"):
    """What every event has. `seq` is its position in the record: give it to `stream(after=...)` to
    continue from there. `run` is the run that it is about, `root` the run at the top of the tree,
    `depth` how far below that it is, and `label` its name in one line."""

    seq: int
    at: datetime
    run: RunId[Any]
    root: RunId[Any]
    depth: int
    label: str


class RunStarted(_Event, tag="run_started"):
    """A run exists: a root, or the child of `parent`, started by its call `call_id` in turn
    `call_turn` if that is not "". Runs that continue each other have one `conversation`. `meta` is
    what the program said of it."""

    type: ClassVar[Literal["run_started"]] = "run_started"
    parent: RunId[Any] | None
    agent: str
    task: str
    model: str
    call_id: str = ""
    call_turn: int = 0
    conversation: str = ""
    meta: dict[str, str] = msgspec.field(default_factory=dict)


class RunWaiting(_Event, tag="run_waiting"):
    """A run has nothing of its own under way until what it waits for comes."""

    type: ClassVar[Literal["run_waiting"]] = "run_waiting"
    waiting_for: WaitingFor
    detail: str


class RunEnded(_Event, tag="run_ended"):
    """A run has ended, and how. `tree_usage` includes all runs below it that have ended."""

    type: ClassVar[Literal["run_ended"]] = "run_ended"
    state: EndState
    stop: str
    text: str
    error: str
    usage: Usage
    tree_usage: Usage
    seconds: float


class TextDelta(_Event, tag="text_delta"):
    """Text as it comes from a model: a preview, which is not recorded. If the call is tried again,
    `attempt` rises and the text starts anew. `start` is the number of characters before it in this
    reply: a reader who begins in the middle gets first what was written until then."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    attempt: int
    text: str
    start: int = 0


class ModelReplied(_Event, tag="model_replied"):
    """A model has answered in full; `seconds` is how long this attempt took."""

    type: ClassVar[Literal["model_replied"]] = "model_replied"
    turn: int
    text: str
    calls: tuple[ToolCall, ...]
    usage: Usage
    model: str
    seconds: float = 0.0


class ModelRetried(_Event, tag="model_retried"):
    """A model call has failed after `seconds`, and is tried again in `next_try_in` seconds. `kind`
    is the failure in one word."""

    type: ClassVar[Literal["model_retried"]] = "model_retried"
    attempt: int
    error: str
    next_try_in: float
    kind: str = ""
    seconds: float = 0.0


class ToolStarted(_Event, tag="tool_started"):
    """A tool runs; after a restart, or a question that it asked, it may run again."""

    type: ClassVar[Literal["tool_started"]] = "tool_started"
    turn: int
    call: ToolCall


class ToolReturned(_Event, tag="tool_returned"):
    """The result of a call, as its model reads it."""

    type: ClassVar[Literal["tool_returned"]] = "tool_returned"
    turn: int
    call: ToolCall
    text: str
    is_error: bool
    is_denied: bool
    seconds: float


class QuestionAsked(_Event, tag="question_asked"):
    """Something waits for a person: `Retinue.answer` or `Retinue.decide`."""

    type: ClassVar[Literal["question_asked"]] = "question_asked"
    question: Question


class QuestionAnswered(_Event, tag="question_answered"):
    """A question was answered in words (`allowed` is None), or decided."""

    type: ClassVar[Literal["question_answered"]] = "question_answered"
    question_id: str
    allowed: bool | None
    text: str
    by: str


class MessageReceived(_Event, tag="message_received"):
    """A message has reached a run; `sender` is a run, or "" for the user or program."""

    type: ClassVar[Literal["message_received"]] = "message_received"
    sender: str
    text: str


class Announced(_Event, tag="announced"):
    """A channel has taken an announcement, or one try has failed."""

    type: ClassVar[Literal["announced"]] = "announced"
    channel: str
    delivered: bool
    error: str


Event = (
    RunStarted
    | RunWaiting
    | RunEnded
    | TextDelta
    | ModelReplied
    | ModelRetried
    | ToolStarted
    | ToolReturned
    | QuestionAsked
    | QuestionAnswered
    | MessageReceived
    | Announced
)
"""One of the twelve things that happen in a tree."""


def to_json(event: Event) -> str:
    """One line of JSON with the type in the field `type`. Values inside of it, such as
    `usage`, omit fields that have their default."""
    return msgspec.json.encode(event).decode()


def to_sse(event: Event) -> bytes:
    """A server-sent event whose id is `seq`, so that a browser continues where it was."""
    return b"id: %d\ndata: %b\n\n" % (event.seq, msgspec.json.encode(event))
