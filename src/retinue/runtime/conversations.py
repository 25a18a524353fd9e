"""The messages of open runs in memory, each once: a fork shares its parent's."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

from retinue.core.history import Conversation
from retinue.core.messages import Message, ToolMessage
from retinue.core.spec import ForkPoint, RunSpec
from retinue.store.base import Store


class Conversations:
    """By conversation. What is not at hand is read from the store when it is needed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Conversation] = {}
        self._bases: WeakValueDictionary[tuple[str, int], Conversation] = WeakValueDictionary()
        self._resumed: dict[str, str] = {}

    def begin(self, spec: RunSpec) -> None:
        """A new conversation, or a fork of one that is at hand; any other is read when it is
        needed."""
        if spec.conversation != spec.id:
            self._resumed[spec.id] = spec.conversation
            return
        if spec.base is None:
            self._known[spec.conversation] = Conversation()
        elif (base := self._known.get(spec.base.conversation)) is not None:
            self._known[spec.conversation] = Conversation(base, spec.base.length)

    def add(self, messages: Iterable[tuple[str, int, Message]]) -> None:
        """New messages, each with its conversation and its place there."""
        find = self._known.get
        for conversation, n, message in messages:
            chain = find(conversation)
            if chain is not None and chain.base_length + len(chain.own) == n:
                chain.own.append(message)

    def at_hand(self, conversation: str) -> Conversation | None:
        return self._known.get(conversation)

    async def of(self, spec: RunSpec, length: int) -> Conversation:
        """A run's messages, read from the store if they are not at hand. Forks share what they were
        forked from."""
        chain = self._known.get(spec.conversation)
        if chain is None:
            base = spec.base if spec.base is not None and spec.conversation == spec.id else None
            chain = (
                Conversation()
                if base is None
                else Conversation(await self._shared(base), base.length)
            )
            chain.own.extend(
                await self._store.messages(spec.conversation, chain.base_length, length)
            )
            chain = self._known.setdefault(spec.conversation, chain)
        return chain

    async def _shared(self, base: ForkPoint) -> Conversation:
        """A conversation that others begin with: in memory once, as long as one of them is."""
        conversation = self._known.get(base.conversation) or self._bases.get(
            (base.conversation, base.length)
        )
        if conversation is None or len(conversation) < base.length:
            conversation = Conversation()
            conversation.own.extend(await self._store.messages(base.conversation, 0, base.length))
            # What was deleted meanwhile is not shown; places are kept, for others are counted from
            # here.
            conversation.own.extend(
                [ToolMessage(call_id="", text="")] * (base.length - len(conversation))
            )
            conversation = self._bases.setdefault((base.conversation, base.length), conversation)
        return conversation

    def drop(self, run: str) -> None:
        """The run has ended: its messages are in the store."""
        self._known.pop(self._resumed.pop(run, run), None)
