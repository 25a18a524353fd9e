"""How far a conversation was sent to a reader: a reply is sent with the step that recorded it,
other messages as soon as they are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retinue.core.events import LogEntry, Replied
from retinue.core.messages import AssistantMessage, Message
from retinue.core.state import RunRecord
from retinue.host.tree_items import MessageAdded


class MessageCursor:
    """The messages of one run that were not sent yet; `n` is the number of the first of them."""

    def __init__(self, n: int, messages: Sequence[Message] = ()) -> None:
        self.n, self._messages = n, list(messages[n:])

    @property
    def known(self) -> int:
        """How many messages of the conversation are known here."""
        return self.n + len(self._messages)

    def add(self, messages: Sequence[Message]) -> None:
        self._messages.extend(messages)

    def take(self, run: str, entry: LogEntry) -> Iterator[MessageAdded]:
        """The messages that can be sent with a step."""
        replies = int(isinstance(entry.event, Replied) and not entry.stale)
        while self._messages:
            if isinstance(self._messages[0], AssistantMessage):
                if not replies:
                    return
                replies -= 1
            yield self._one(run)

    def rest(self, run: str) -> Iterator[MessageAdded]:
        while self._messages:
            yield self._one(run)

    def _one(self, run: str) -> MessageAdded:
        self.n += 1
        return MessageAdded(run=run, n=self.n - 1, message=self._messages.pop(0))


def inherited(row: RunRecord) -> int:
    """How many messages a run has from another."""
    return row.spec.base.length if row.spec.base is not None else 0
