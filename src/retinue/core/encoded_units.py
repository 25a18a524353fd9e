"""Encoded parts of a conversation, kept per dialect, so that a turn encodes only what is new."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from retinue.core.messages import AssistantMessage, Message, ToolMessage

if TYPE_CHECKING:
    from retinue.core.history import Conversation

Encode = Callable[[Sequence[Message]], bytes]
CHUNK = 65_536


class Encoded:
    """The own units of a conversation as one dialect writes them: a message other than a tool
    result, and its tool results.

    `starts` and `sizes` tell of each unit its first message and its bytes; `n` is how many messages
    have been taken. A unit is taken once nothing can be added to it. The first `n_joined` units are
    kept joined, in `chunks`, so that a long conversation is a few pieces; `firsts` are the chunks'
    first units. The last unit is always separate."""

    __slots__ = (
        "_loose_size",
        "chunks",
        "firsts",
        "loose",
        "n",
        "n_joined",
        "opening",
        "shared",
        "sizes",
        "starts",
    )

    def __init__(self, n: int) -> None:
        self.n = n
        self.starts: list[int] = []
        self.sizes: list[int] = []
        self.chunks: list[bytes] = []
        self.firsts: list[int] = []
        self.n_joined = 0
        self.loose: list[bytes] = []
        self._loose_size = 0
        self.opening = b""
        self.shared: dict[tuple[int, int], bytes] = {}

    @property
    def size(self) -> int:
        return sum(map(len, (*self.chunks, *self.shared.values()))) + self._loose_size

    def pieces(
        self, conversation: Conversation, start: int, stop: int, encode: Encode
    ) -> list[bytes]:
        """The conversation is not kept here: in a circle both would live until the garbage is
        collected."""
        open_at = self._take(conversation, stop, encode) if self.n < stop else None
        if self.n <= stop and self.starts and start <= self.starts[0]:
            out = self.chunks + self.loose
            return (
                out if open_at is None else [*out, self._open(conversation, open_at, stop, encode)]
            )
        first, last = bisect_left(self.starts, start), bisect_left(self.starts, stop)
        if last > first and (self.starts[last] if last < len(self.starts) else self.n) > stop:
            # Asked for up to the middle of a unit: what is behind that is not shown.
            last -= 1
            open_at = self.starts[last]
        if first >= self.n_joined:
            out = self.loose[first - self.n_joined : last - self.n_joined]
        elif last >= self.n_joined:
            out = self.chunks[self._cut(first) :] + self.loose[: last - self.n_joined]
        else:
            out = self.chunks[self._cut(first) : self._cut(last)]
        if open_at is not None and open_at >= start:
            out.append(self._open(conversation, open_at, stop, encode))
        return out

    def _open(self, conversation: Conversation, start: int, stop: int, encode: Encode) -> bytes:
        """A unit to which more can be added, as it is shown now."""
        base = conversation.base_length
        unit = conversation.own[start - base : stop - base]
        return encode(conversation.settled(start, unit))

    def _take(self, conversation: Conversation, stop: int, encode: Encode) -> int | None:
        """Write what is new and can be kept. Returns where a unit begins that is still open."""
        own, base = conversation.own, conversation.base_length
        at, last, length = self.n - base, stop - base, len(own)
        while at < last:
            head, end = own[at], at + 1
            while end < length and type(own[end]) is ToolMessage:
                end += 1
            unit: Sequence[Message] = (head,)
            if type(head) is ToolMessage:
                self.n = base + end
                at = end
                continue
            if type(head) is AssistantMessage and head.calls:
                unit = own[at:end]
                if end == length and not _is_paid(head, unit):
                    return base + at
                unit = conversation.settled(base + at, unit)
            data = encode(unit)
            size = len(data)
            if self._loose_size >= CHUNK:
                self._join()
            self.starts.append(base + at)
            self.sizes.append(size)
            self.loose.append(data)
            self._loose_size += size
            self.n = base + end
            at = end
        return None

    def _join(self) -> None:
        self.firsts.append(self.n_joined)
        self.chunks.append(b",".join(self.loose))
        self.n_joined += len(self.loose)
        self.loose, self._loose_size = [], 0

    def _cut(self, unit: int) -> int:
        """The chunk that begins with this unit; where none does, one is cut in two, once and for
        all."""
        n = bisect_right(self.firsts, unit) - 1
        first = self.firsts[n]
        if first == unit:
            return n
        chunk, size = self.chunks[n], sum(self.sizes[first:unit]) + unit - first
        self.chunks[n : n + 1] = [chunk[: size - 1], chunk[size:]]
        self.firsts.insert(n + 1, unit)
        return n + 1


def _is_paid(head: AssistantMessage, unit: Sequence[Message]) -> bool:
    """Whether each call of the message that a unit begins with has its result, so that none can be
    added."""
    calls = head.calls
    if len(unit) <= len(calls):
        return False
    paid = [r.call_id for r in unit if isinstance(r, ToolMessage)]
    if len(calls) == 1:
        return calls[0].id in paid
    return not Counter(c.id for c in calls) - Counter(paid)
