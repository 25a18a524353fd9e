"""What following a tree yields: runs that begin, committed steps, messages, states, and text as it
comes."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.spec import Spec
from retinue.core.values import Value
from retinue.store.base import Row


class RunStarted(Value, tag="run", tag_field="is"):
    """A run of the tree: comes before everything else about it."""

    spec: Spec


class Stepped(Value, tag="step", tag_field="is"):
    """A committed event."""

    seq: int
    entry: LogEntry


class MessageAdded(Value, tag="message", tag_field="is"):
    """A message of a run's conversation, by its number in it."""

    run: str
    n: int
    message: Message


class RunChanged(Value, tag="state", tag_field="is"):
    """A run after its state has changed."""

    row: Row


class Said(Value, tag="delta", tag_field="is"):
    """Text as it comes from a model; a preview, never recorded."""

    run: str
    attempt: int
    text: str


TreeItem = RunStarted | Stepped | MessageAdded | RunChanged | Said


class StepNews(Value):
    """One step of a tree with everything that belongs to it: one event of a stream, whole or not
    there. `started` is set with the first step of a run that a reader sees, `row` when the run's
    state has changed."""

    seq: int
    entry: LogEntry
    started: Spec | None = None
    messages: tuple[MessageAdded, ...] = ()
    row: Row | None = None

    def items(self) -> Iterator[TreeItem]:
        """The same, one thing at a time."""
        if self.started is not None:
            yield RunStarted(spec=self.started)
        yield Stepped(seq=self.seq, entry=self.entry)
        yield from self.messages
        if self.row is not None:
            yield RunChanged(row=self.row)
