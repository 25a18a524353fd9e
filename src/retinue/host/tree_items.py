"""What following a tree yields: runs that begin, committed steps, messages, states, and text as it
comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.spec import RunSpec
from retinue.core.state import Run, RunRecord
from retinue.core.values import ModelInfo, Value
from retinue.runtime.held_calls import HeldCall
from retinue.runtime.text_pieces import TextPiece


class StoredRun(Value):
    """A `RunRecord` for clients, who read fields by name."""

    spec: RunSpec
    run: Run

    @classmethod
    def of(cls, record: RunRecord) -> StoredRun:
        return cls(spec=record.spec, run=record.run)

    @property
    def record(self) -> RunRecord:
        return RunRecord(self.spec, self.run)


class RunAdded(Value, tag="run", tag_field="is"):
    """A run of the tree: comes before everything else about it."""

    spec: RunSpec


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

    row: StoredRun


class TextArrived(Value, tag="delta", tag_field="is"):
    """Text as it comes from a model; a preview, never recorded. `start` is the number of characters
    before it in this reply: who connects again gets the reply that is being written from its
    beginning."""

    run: str
    attempt: int
    text: str
    start: int = 0

    @classmethod
    def of(cls, piece: TextPiece) -> TextArrived:
        return cls(run=piece.run, attempt=piece.attempt, text=piece.text, start=piece.start)


class CallsHeld(Value, tag="held", tag_field="is"):
    """The model calls that wait now, because their provider is left alone after what it answered
    to others; all others do not. Asked of the host, and never recorded."""

    calls: tuple[HeldCall, ...] = ()

    @classmethod
    def in_status(cls, status: Mapping[str, Any]) -> CallsHeld:
        """Those that a host tells of when it is asked for its state."""
        return cls(calls=msgspec.convert(status.get("held", ()), tuple[HeldCall, ...]))


TreeItem = RunAdded | Stepped | MessageAdded | RunChanged | TextArrived | CallsHeld


class StepNews(Value):
    """One step of a tree with everything that belongs to it: one event of a stream, whole or not
    there. `started` is set with the first step of a run that a reader sees, `model` with the first
    run of each model, `row` when the run's state has changed."""

    seq: int
    entry: LogEntry
    started: RunSpec | None = None
    messages: tuple[MessageAdded, ...] = ()
    row: StoredRun | None = None
    model: ModelInfo | None = None

    def items(self) -> Iterator[TreeItem]:
        """The same, one thing at a time."""
        if self.started is not None:
            yield RunAdded(spec=self.started)
        yield Stepped(seq=self.seq, entry=self.entry)
        yield from self.messages
        if self.row is not None:
            yield RunChanged(row=self.row)
