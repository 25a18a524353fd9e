"""Conversations in memory, and what a model is shown of them.

A fork shares its prefix with the conversation it came from: it is a pointer and a length, never a copy. What a dialect
makes of a message is made once and kept beside it, so that a turn costs what is new in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import overload

from retinue.core.values import Assistant, Call, Message, Result

MISSING = (
    "No result was recorded: the call was interrupted before it finished. "
    "It may or may not have taken effect; check before you repeat it."
)
Encode = Callable[[Sequence[Message]], bytes]
CHUNK = 65_536


class Conversation:
    """The messages of one conversation, the last of them its own."""

    __slots__ = ("__weakref__", "base", "base_length", "encoded", "own")

    def __init__(self, base: Conversation | None = None, base_length: int = 0) -> None:
        self.base = base
        self.base_length = base_length
        self.own: list[Message] = []
        self.encoded: dict[str, Encoded] | None = None

    def __len__(self) -> int:
        return self.base_length + len(self.own)

    def append(self, message: Message) -> None:
        self.own.append(message)

    def read(self, start: int, stop: int) -> Iterator[Message]:
        if self.base is not None and start < self.base_length:
            yield from self.base.read(start, min(stop, self.base_length))
        first = self.base_length
        yield from self.own[max(0, start - first) : max(0, stop - first)]

    def encode(self, dialect: str, start: int, stop: int, encode: Encode) -> list[bytes]:
        """The units from `start` to `stop` as a dialect writes them, in pieces that can be joined."""
        out: list[bytes] = []
        if self.base is not None and start < self.base_length:
            shared = self.base.prefix(dialect, start, min(stop, self.base_length), encode)
            out += [shared] if shared else []
        if stop > self.base_length:
            out += self._encoded(dialect).pieces(start, stop, encode)
        return out

    def prefix(self, dialect: str, start: int, stop: int, encode: Encode) -> bytes:
        """The same in one piece, which all forks from this point share."""
        mine = self._encoded(dialect)
        if mine.shared is None or mine.shared[:2] != (start, stop):
            mine.shared = (start, stop, b",".join(self.encode(dialect, start, stop, encode)))
        return mine.shared[2]

    def _encoded(self, dialect: str) -> Encoded:
        if self.encoded is None:
            self.encoded = {}
        mine = self.encoded.get(dialect)
        if mine is None:
            mine = self.encoded[dialect] = Encoded(self)
        return mine


class Encoded:
    """The own units of a conversation as one dialect writes them. `starts` are their first messages, `n` is how many
    messages have been taken; the last unit is taken only when nothing can be added to it. Older units are kept joined,
    in `chunks`: a long conversation is a few pieces, not hundreds."""

    __slots__ = ("_loose", "chunked", "chunks", "conversation", "n", "shared", "starts", "written")

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.n = conversation.base_length
        self.starts: list[int] = []
        self.written: list[bytes] = []
        self.chunks: list[bytes] = []
        self.chunked = 0
        self._loose = 0
        self.shared: tuple[int, int, bytes] | None = None

    def pieces(self, start: int, stop: int, encode: Encode) -> list[bytes]:
        open_unit = self._take(stop, encode)
        first = bisect_left(self.starts, start)
        last = bisect_left(self.starts, stop)
        if first == 0 and last >= self.chunked:
            out = [*self.chunks, *self.written[self.chunked : last]]
        else:
            out = [self.written[i] or encode(self._unit(i)) for i in range(first, last)]
        if open_unit is not None and open_unit[0] >= start:
            out.append(open_unit[1])
        return out

    def _take(self, stop: int, encode: Encode) -> tuple[int, bytes] | None:
        """Write what is new. Returns the last unit when it is still open: with fillers, and not kept."""
        own, base = self.conversation.own, self.conversation.base_length
        while self.n < stop:
            at = self.n
            head = own[at - base]
            if isinstance(head, Result):
                self.n += 1
                continue
            end = at + 1
            while end < stop and isinstance(own[end - base], Result):
                end += 1
            unit = settled(own[at - base : end - base])
            open_end = isinstance(head, Assistant) and len(head.calls) > end - at - 1 and end == stop == base + len(own)
            if open_end:
                return at, encode(unit)
            self.starts.append(at)
            self.written.append(encode(unit))
            self._loose += len(self.written[-1])
            self.n = end
        if self._loose >= CHUNK:
            self._join()
        return None

    def _join(self) -> None:
        """What is old goes into one piece; a unit of it that is asked for alone is written again."""
        self.chunks.append(b",".join(self.written[self.chunked :]))
        for i in range(self.chunked, len(self.written)):
            self.written[i] = b""
        self.chunked, self._loose = len(self.written), 0

    def _unit(self, i: int) -> list[Message]:
        base = self.conversation.base_length
        end = self.starts[i + 1] if i + 1 < len(self.starts) else self.n
        return settled(self.conversation.own[self.starts[i] - base : end - base])


class History(Sequence[Message]):
    """What a run's model is shown: a part of a conversation, made a list only if somebody wants one."""

    __slots__ = ("_list", "conversation", "start", "stop")

    def __init__(self, conversation: Conversation, start: int, stop: int) -> None:
        self.conversation, self.start, self.stop = conversation, start, stop
        self._list: list[Message] | None = None

    @property
    def shown(self) -> list[Message]:
        if self._list is None:
            self._list = view(self.conversation, self.start, self.stop)
        return self._list

    def __len__(self) -> int:
        return len(self.shown)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self.shown[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.shown)

    def encode(self, dialect: str, encode: Encode) -> list[bytes]:
        return self.conversation.encode(dialect, self.start, self.stop, encode)

    def last_unit(self) -> list[Message]:
        """The last message that is no result, and its results."""
        first = self.stop - 1
        read = self.conversation.read
        while first > self.start and isinstance(next(iter(read(first, first + 1))), Result):
            first -= 1
        return settled(list(read(first, self.stop)))


def view(conversation: Conversation, start: int, stop: int) -> list[Message]:
    """What a provider accepts: each call has one result, right behind it, in the order of the calls; nothing else has.

    Crashes, cancels and steering leave calls without a result; they get one here that says so.
    """
    out: list[Message] = []
    unit: list[Message] = []
    for message in conversation.read(start, stop):
        if not isinstance(message, Result):
            out += settled(unit)
            unit = []
        unit.append(message)
    return out + settled(unit)


def settled(unit: Sequence[Message]) -> list[Message]:
    """A message and the results of its calls: one each, in their order. Results without a call are left out."""
    if not unit or isinstance(unit[0], Result):
        return []
    head = unit[0]
    if not isinstance(head, Assistant) or not head.calls:
        return [head]
    if len(unit) == 2 and len(head.calls) == 1 and unit[1].call_id == head.calls[0].id:  # type: ignore[union-attr]
        return [head, unit[1]]
    owed: dict[str, list[Call]] = {}
    paid: dict[int, Result] = {}
    for call in reversed(head.calls):
        owed.setdefault(call.id, []).append(call)
    for result in unit[1:]:
        assert isinstance(result, Result)
        waiting = owed.get(result.call_id)
        if waiting:
            paid[id(waiting.pop())] = result
    missing = [paid.get(id(c)) or Result(call_id=c.id, name=c.name, text=MISSING, error=True) for c in head.calls]
    return [head, *missing]
