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
    owed: dict[str, list[Call]] = {}
    paid: dict[int, Result] = {}
    calls: tuple[Call, ...] = ()
    for message in conversation.read(start, stop):
        if isinstance(message, Result):
            waiting = owed.get(message.call_id)
            if waiting:
                paid[id(waiting.pop())] = message
            continue
        if calls:
            out.extend(_settled(calls, paid))
        out.append(message)
        calls = message.calls if isinstance(message, Assistant) else ()
        owed, paid = {}, {}
        for call in reversed(calls):
            owed.setdefault(call.id, []).append(call)
    out.extend(_settled(calls, paid))
    return out


def _settled(calls: tuple[Call, ...], paid: dict[int, Result]) -> Iterator[Message]:
    for call in calls:
        yield paid.get(id(call)) or Result(call_id=call.id, name=call.name, text=MISSING, error=True)
