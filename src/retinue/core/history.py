"""Conversations in memory, and what a model is shown of them.

A fork shares its prefix with the conversation it came from: it is a pointer and a length, never a
copy. What a dialect makes of a message is made once and kept beside it, so that a turn costs what
is new in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import overload

from msgspec.structs import replace

from retinue.core.encoded_units import Encode, Encoded
from retinue.core.ids import digest
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

MISSING = (
    "No result was recorded: the call was interrupted before it finished. "
    "It may or may not have taken effect; check before you repeat it."
)
LEFT_OUT = UserMessage(text="(The beginning of this conversation was omitted.)", kind="nudge")
"""Providers take no conversation that begins with a reply."""
MOST_SHARED = 4
MOST_WAYS, SMALL = 8, 4 << 20
"""In so many ways a conversation is kept as it was written, and in one if that is not small: each
picture that a provider refuses makes a new way, and each keeps all the other pictures."""
ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Ids of calls that every dialect takes."""
OUR_ID = "call_r"
"""The prefix of ids that replace others."""


class Conversation:
    """The messages of one conversation, the last of them its own."""

    __slots__ = (
        "__weakref__",
        "_n_named",
        "_names",
        "_renamed",
        "base",
        "base_length",
        "encoded",
        "own",
        "viewed",
    )

    def __init__(self, base: Conversation | None = None, base_length: int = 0) -> None:
        self.base = base
        self.base_length = base_length
        self.own: list[Message] = []
        self.encoded: dict[str, Encoded] | None = None
        self.viewed: tuple[int, int, list[Message]] | None = None
        """What was shown last from a place on, up to another where a unit begins: nothing can be
        added before that."""
        self._names: dict[str, int] = {}
        self._renamed: dict[int, tuple[str, ...]] = {}
        self._n_named = base_length

    def __len__(self) -> int:
        return self.base_length + len(self.own)

    def append(self, message: Message) -> None:
        self.own.append(message)

    def at(self, n: int) -> Message:
        one = self
        while n < one.base_length:
            assert one.base is not None
            one = one.base
        return one.own[n - one.base_length]

    def read(self, start: int, stop: int) -> Iterator[Message]:
        if self.base is not None and start < self.base_length:
            yield from self.base.read(start, min(stop, self.base_length))
        first = self.base_length
        yield from self.own[max(0, start - first) : max(0, stop - first)]

    def settled(self, first: int, unit: Sequence[Message]) -> list[Message]:
        """The unit that begins at `first`, with a result for each call, and with ids that nothing
        before it has.

        A server may call each turn's call `call_0`, and a provider that continues the conversation
        refuses repeated ids. The first that has an id keeps it, so that what was sent before stays
        the same; the names of others depend on their place alone, so that they are the same after a
        restart and in every fork."""
        whole = settled(unit)
        if len(whole) <= 1:
            return whole
        one: Conversation = self
        while first < one.base_length:
            assert one.base is not None
            one = one.base
        ids = one._ids(first)
        if ids is None:
            return whole
        head, results = whole[0], whole[1:]
        assert isinstance(head, AssistantMessage)
        calls = tuple(replace(call, id=id) for call, id in zip(head.calls, ids, strict=True))
        named = [
            replace(r, call_id=id)
            for r, id in zip(results, ids, strict=True)
            if isinstance(r, ToolMessage)
        ]
        return [replace(head, calls=calls), *named]

    def _ids(self, at: int) -> tuple[str, ...] | None:
        """The ids of the calls in message `at` of our own, when they are not those that it has."""
        if self.base is not None and self.base._n_named < self.base_length:
            self.base._ids(self.base_length - 1)
        own, base = self.own, self.base_length
        for n in range(self._n_named, at + 1):
            message = own[n - base]
            if type(message) is AssistantMessage and message.calls:
                self._name_calls(n, message.calls)
        self._n_named = max(self._n_named, at + 1)
        return self._renamed.get(at)

    def _name_calls(self, n: int, calls: Sequence[ToolCall]) -> None:
        """Note the ids of the calls in message `n`. One that is none, or another's, is replaced."""
        names, ids = self._names, [call.id for call in calls]
        for i, id in enumerate(ids):
            if not ID.fullmatch(id) or self._is_taken(id):
                ids[i] = id = self._name(n, i, id)
                self._renamed[n] = ()
            names[id] = n
        if n in self._renamed:
            self._renamed[n] = tuple(ids)

    def _name(self, n: int, i: int, proposal: str) -> str:
        """An id for a call whose own is none, or another's."""
        id, k = proposal, 0
        while not ID.fullmatch(id) or self._is_taken(id):
            id, k = f"{OUR_ID}{digest(proposal, n, i, k)[:24]}", k + 1
        return id

    def _is_taken(self, id: str) -> bool:
        if id in self._names:
            return True
        one: Conversation = self
        length = one.base_length
        while one.base is not None:
            one = one.base
            if one._names.get(id, length) < length:
                return True
            length = min(length, one.base_length)
        return False

    def encode(self, dialect: str, start: int, stop: int, encode: Encode) -> list[bytes]:
        """The units from `start` to `stop` as a dialect writes them, in pieces that can be
        joined."""
        out: list[bytes] = []
        if self.base is not None and start < self.base_length:
            shared = self.base.prefix(dialect, start, min(stop, self.base_length), encode)
            out += [shared] if shared else []
        if stop > self.base_length:
            out += self.of_dialect(dialect).pieces(self, start, stop, encode)
        return out

    def prefix(self, dialect: str, start: int, stop: int, encode: Encode) -> bytes:
        """The same in one piece, which all forks from this point share."""
        shared, key = self.of_dialect(dialect).shared, (start, stop)
        piece = shared.get(key)
        if piece is None:
            if len(shared) >= MOST_SHARED or sum(map(len, shared.values())) > SMALL:
                del shared[next(iter(shared))]
            piece = shared[key] = b",".join(self.encode(dialect, start, stop, encode))
        return piece

    def of_dialect(self, dialect: str) -> Encoded:
        encodings = self.encoded
        if encodings is None:
            encodings = self.encoded = {}
        mine = encodings.get(dialect)
        if mine is None:
            if (
                len(encodings) >= MOST_WAYS
                or sum(other.size for other in encodings.values()) > SMALL
            ):
                encodings.clear()  # it is written again, byte for byte, if it is needed
            mine = encodings[dialect] = Encoded(self.base_length)
        return mine

    def picture_bytes(self, start: int) -> int:
        """Of all pictures from a place on, in base64."""
        return sum(
            len(image.data)
            for message in self.read(start, len(self))
            if not isinstance(message, AssistantMessage)
            for image in message.images
        )


def as_shown(messages: Sequence[Message]) -> ShownMessages:
    """Messages that belong to no conversation yet."""
    conversation = Conversation()
    conversation.own.extend(messages)
    return ShownMessages(conversation, 0, len(conversation))


class ShownMessages(Sequence[Message]):
    """What a run's model is shown: a part of a conversation, made a list only when one is
    needed."""

    __slots__ = ("_list", "conversation", "is_cut", "start", "stop")

    def __init__(self, conversation: Conversation, start: int, stop: int) -> None:
        self.conversation, self.start, self.stop = conversation, start, stop
        self.is_cut = begins_with_a_reply(conversation, start, stop)
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
        """What is shown, as a dialect writes it. If it `is_cut`, the first piece says so; the last
        unit of the whole conversation is a piece of its own."""
        pieces = self.conversation.encode(dialect, self.start, self.stop, encode)
        if self.is_cut:
            encodings = self.conversation.of_dialect(dialect)
            encodings.opening = encodings.opening or encode((LEFT_OUT,))
            pieces.insert(0, encodings.opening)
        return pieces

    def last_unit(self) -> list[Message]:
        """The last message other than a tool result, and its tool results."""
        first = self.stop - 1
        while first > self.start and isinstance(self.conversation.at(first), ToolMessage):
            first -= 1
        return self.conversation.settled(first, list(self.conversation.read(first, self.stop)))


def view(conversation: Conversation, start: int, stop: int) -> list[Message]:
    """What a provider accepts: it begins with a user's message; each call has one result, right
    behind it, in the order of the calls; nothing else has.

    Crashes, cancels and steering leave calls without a result; they get one here that says so. What
    was cut because it was too long, or to show only the last messages, may begin with a reply; that
    is said in front of it."""
    viewed = conversation.viewed
    if viewed is not None and viewed[0] == start and viewed[1] <= stop:
        _, first, out = viewed
    else:
        first, out = start, [LEFT_OUT] if begins_with_a_reply(conversation, start, stop) else []
    n_known, new = first, list[Message]()
    unit: list[Message] = []
    base = conversation.base_length
    read = (
        conversation.read(first, stop)
        if first < base
        else conversation.own[first - base : max(0, stop - base)]
    )
    for n, message in enumerate(read, first):
        if not isinstance(message, ToolMessage):
            new += conversation.settled(first, unit)
            unit, first = [], n
        unit.append(message)
    if first > n_known:
        out = out + new
        conversation.viewed = (start, first, out)
    return out + conversation.settled(first, unit)


def begins_with_a_reply(conversation: Conversation, start: int, stop: int) -> bool:
    own, first = conversation.own, start - conversation.base_length
    if 0 <= first < len(own) and start < stop:
        message = own[first]
        if not isinstance(message, ToolMessage):
            return isinstance(message, AssistantMessage)
    stop = min(stop, len(conversation))
    for n in range(start, stop):
        message = conversation.at(n)
        if not isinstance(message, ToolMessage):
            return isinstance(message, AssistantMessage)
    return False


def settled(unit: Sequence[Message]) -> list[Message]:
    """A message and the results of its calls: one each, in their order. Results without a call are
    omitted."""
    if not unit or isinstance(unit[0], ToolMessage):
        return []
    head = unit[0]
    if not isinstance(head, AssistantMessage) or not head.calls:
        return [head]
    if len(unit) == 2 and len(head.calls) == 1 and unit[1].call_id == head.calls[0].id:  # type: ignore[union-attr]
        return [head, unit[1]]
    owed: dict[str, list[ToolCall]] = {}
    paid: dict[int, ToolMessage] = {}
    for call in reversed(head.calls):
        owed.setdefault(call.id, []).append(call)
    for result in unit[1:]:
        assert isinstance(result, ToolMessage)
        waiting = owed.get(result.call_id)
        if waiting:
            paid[id(waiting.pop())] = result
    missing = [
        paid.get(id(c)) or ToolMessage(call_id=c.id, name=c.name, text=MISSING, error=True)
        for c in head.calls
    ]
    return [head, *missing]


def complete_turns(messages: Sequence[Message]) -> int:
    """How many of these messages, at most, end with no call open."""
    whole, open_calls = 0, set[str]()
    for n, message in enumerate(messages, 1):
        match message:
            case AssistantMessage(calls=calls):
                open_calls = {c.id for c in calls}
            case ToolMessage(call_id=call_id):
                open_calls.discard(call_id)
            case _:
                pass
        if not open_calls:
            whole = n
    return whole
