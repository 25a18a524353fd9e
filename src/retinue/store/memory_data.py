"""The data of a store in memory, and how trees are found and copied."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from retinue.core.account import Account
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.spec import ForkPoint, RunSpec
from retinue.core.state import Ended, Run, ending_of
from retinue.core.task_list import Noted
from retinue.core.values import Definition, Delivery, Mail, ModelInfo
from retinue.store.base import RunLine
from retinue.store.sent_calls import SentCalls


class HeldConversation:
    __slots__ = ("base", "below", "messages")

    def __init__(self, base: ForkPoint | None) -> None:
        self.base = base
        self.below: list[str] = []
        self.messages: dict[int, Message] = {}


class HeldEntry(msgspec.Struct, frozen=True, gc=False):
    """One event: its position, its tree and its number there, its run. A purged one has None
    instead of its entry."""

    seq: int
    tree: str
    number: int
    run: str
    entry: LogEntry | None


class MemoryData:
    """What survives the handle. `trees` are the numbers of the last events; a forgotten tree keeps
    its own."""

    def __init__(self) -> None:
        self.epoch = 0
        self.seq = 0
        self.log: list[HeldEntry] = []
        self.trees: dict[str, int] = {}
        self.waiting: dict[str, int] = {}
        self.conversations: dict[str, HeldConversation] = {}
        self.specs: dict[str, RunSpec] = {}
        self.runs: dict[str, Run] = {}
        self.children: dict[str, list[str]] = {}
        self.accounts: dict[str, Account] = {}
        self.mail: dict[tuple[str, int], Mail] = {}
        self.deliveries: dict[str, Delivery] = {}
        self.definitions: dict[str, Definition] = {}
        self.models: dict[str, ModelInfo] = {}
        self.artifacts: dict[str, bytes] = {}
        self.task_lists: dict[str, dict[str, Noted]] = {}
        self.sent = SentCalls()


def add_run(data: MemoryData, spec: RunSpec) -> None:
    """A new run; its conversation is made unless it continues in one that is there."""
    data.specs[spec.id] = spec
    if spec.parent:
        data.children.setdefault(spec.parent, []).append(spec.id)
    if spec.conversation not in data.conversations:
        base = (
            spec.base
            if spec.base is not None and spec.base.conversation != spec.conversation
            else None
        )
        data.conversations[spec.conversation] = HeldConversation(base)
        if spec.parent:
            data.conversations[data.specs[spec.parent].conversation].below.append(spec.conversation)


def messages_in(
    data: MemoryData, conversation: str, start: int, stop: int | None
) -> Iterator[tuple[int, Message]]:
    """The messages of a conversation and of its bases, each from where the next one begins down."""
    part = data.conversations.get(conversation)
    high = stop
    while part is not None:
        low = part.base.length if part.base is not None else 0
        for n in range(
            max(low, start), next(reversed(part.messages), -1) + 1 if high is None else high
        ):
            if n in part.messages:
                yield n, part.messages[n]
        if part.base is None or low <= start:
            return
        high = low if high is None else min(low, high)
        part = data.conversations.get(part.base.conversation)


def conversations_below(data: MemoryData, root: str) -> dict[str, None]:
    """The conversation of a run and all below it."""
    spec = data.specs.get(root)
    tree = {spec.conversation: None} if spec is not None else {}
    todo = list(tree)
    while todo:
        below = data.conversations[todo.pop()].below
        tree.update(dict.fromkeys(below))
        todo.extend(below)
    return tree


def runs_below(data: MemoryData, root: str) -> list[str]:
    tree = conversations_below(data, root)
    return [id for id, spec in data.specs.items() if spec.conversation in tree]


def ended_conversations(data: MemoryData) -> list[tuple[int, str]]:
    """Conversations that a user began and that have ended, by their end."""
    below = {id for conversation in data.conversations.values() for id in conversation.below}
    ends: dict[str, int | None] = {}
    for id, spec in data.specs.items():
        state = data.runs[id].state
        if spec.conversation not in below:
            last = ends.get(spec.conversation, 0)
            ends[spec.conversation] = (
                max(last, state.ending.at)
                if isinstance(state, Ended) and last is not None
                else None
            )
    return sorted(((at, id) for id, at in ends.items() if at is not None), key=lambda end: end[0])


def is_held(data: MemoryData, root: str) -> bool:
    """Whether someone below is open, or something has not been announced yet."""
    runs = set(runs_below(data, root))
    unsent = any(
        d.run in runs and d.state in ("pending", "sent", "dead") for d in data.deliveries.values()
    )
    return unsent or any(not isinstance(data.runs[id].state, Ended) for id in runs)


def run_summary(spec: RunSpec, data: MemoryData) -> RunLine:
    run = data.runs[spec.id]
    ending = ending_of(run)
    return RunLine(
        id=spec.id,
        root=spec.root,
        parent=spec.parent,
        label=spec.request.label or spec.request.agent,
        state=ending.state if ending else type(run.state).__name__.lower(),
        created_at=spec.created_at,
        ended_at=ending.at if ending else None,
        user_initiated=not spec.parent,
        group=spec.request.shown_group,
        agent=spec.request.agent,
        task=spec.request.task,
        user=spec.origin.user,
        meta=spec.meta,
    )
