"""Conversations in memory, and what a model is shown of them.

A fork shares its prefix with the conversation it came from: it is a pointer and a length, never a copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from retinue.core.values import Assistant, Call, Message, Result

MISSING = (
    "No result was recorded: the call was interrupted before it finished. "
    "It may or may not have taken effect; check before you repeat it."
)


class Conversation:
    """The messages of one conversation, the last of them its own."""

    __slots__ = ("base", "base_length", "own")

    def __init__(self, base: Conversation | None = None, base_length: int = 0) -> None:
        self.base = base
        self.base_length = base_length
        self.own: list[Message] = []

    def __len__(self) -> int:
        return self.base_length + len(self.own)

    def append(self, message: Message) -> None:
        self.own.append(message)

    def read(self, start: int, stop: int) -> Iterator[Message]:
        if self.base is not None and start < self.base_length:
            yield from self.base.read(start, min(stop, self.base_length))
        first = self.base_length
        yield from self.own[max(0, start - first) : max(0, stop - first)]


def view(conversation: Conversation, start: int, stop: int) -> list[Message]:
    """What a provider accepts: each call has one result, right behind it, in the order of the calls; nothing else has.

    Crashes, cancels and steering leave calls without a result; they get one here that says so.
    """
    out: list[Message] = []
    owed: list[tuple[Call, Result | None]] = []
    for message in conversation.read(start, stop):
        if isinstance(message, Result):
            _pay(owed, message)
            continue
        out.extend(_settled(owed))
        out.append(message)
        owed = [(call, None) for call in message.calls] if isinstance(message, Assistant) else []
    out.extend(_settled(owed))
    return out


def _pay(owed: list[tuple[Call, Result | None]], result: Result) -> None:
    for n, (call, known) in enumerate(owed):
        if call.id == result.call_id and known is None:
            owed[n] = (call, result)
            return


def _settled(owed: list[tuple[Call, Result | None]]) -> Iterator[Message]:
    for call, result in owed:
        yield result or Result(call_id=call.id, name=call.name, text=MISSING, error=True)
