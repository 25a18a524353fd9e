"""What a store in memory holds, and how its trees are found, copied and forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from retinue.core.account import Account
from retinue.core.changes import Changes
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.spec import Base, Spec
from retinue.core.state import Ended, Run, ending_of
from retinue.core.task_list import Noted
from retinue.core.values import Definition, Delivery, Mail, ModelInfo
from retinue.store.artifact_files import names_in
from retinue.store.base import Summary
from retinue.store.sent_calls import SentCalls

dumps = msgspec.json.Encoder(enc_hook=repr).encode


class HeldConversation:
    __slots__ = ("base", "below", "messages")

    def __init__(self, base: Base | None) -> None:
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
        self.specs: dict[str, Spec] = {}
        self.runs: dict[str, Run] = {}
        self.children: dict[str, list[str]] = {}
        self.accounts: dict[str, Account] = {}
        self.mail: dict[tuple[str, int], Mail] = {}
        self.deliveries: dict[str, Delivery] = {}
        self.definitions: dict[str, Definition] = {}
        self.models: dict[str, ModelInfo] = {}
        self.artifacts: dict[str, bytes] = {}
        self.boards: dict[str, dict[str, Noted]] = {}
        self.sent = SentCalls()


def copy_account(account: Account) -> Account:
    return Account(
        id=account.id,
        parent=account.parent,
        limit=account.limit,
        funded=account.funded,
        spent=account.spent[:],
        held=account.held[:],
        reserve=account.reserve[:],
        closed=account.closed,
        below=account.below,
        guess=account.guess,
        cache=account.cache,
        on_limit=account.on_limit,
        asked=account.asked[:],
    )


def add_run(data: MemoryData, spec: Spec) -> None:
    """A new run; its conversation is made unless it goes on in one that is there."""
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
    found = data.conversations.get(conversation)
    high = stop
    while found is not None:
        low = found.base.length if found.base is not None else 0
        for n in range(
            max(low, start), next(reversed(found.messages), -1) + 1 if high is None else high
        ):
            if n in found.messages:
                yield n, found.messages[n]
        if found.base is None or low <= start:
            return
        high = low if high is None else min(low, high)
        found = data.conversations.get(found.base.conversation)


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
    """Whether somebody below is open, or something has not been announced yet."""
    runs = set(runs_below(data, root))
    unsent = any(
        d.run in runs and d.state in ("pending", "sent", "dead") for d in data.deliveries.values()
    )
    return unsent or any(not isinstance(data.runs[id].state, Ended) for id in runs)


def forget_tree(data: MemoryData, root: str) -> None:
    """Delete the conversation of a run and everything below it; forks outside of it keep what they
    show."""
    tree = conversations_below(data, root)
    gone = dict.fromkeys(runs_below(data, root))
    for id, conversation in data.conversations.items():
        base = conversation.base
        if base is not None and base.conversation in tree and id not in tree:
            conversation.messages = dict(sorted(messages_in(data, id, 0, None)))
            conversation.base = None
    said = [message for id in tree for message in data.conversations[id].messages.values()]
    for id in gone:
        spec = data.specs.pop(id)
        data.children.pop(id, None)
        if spec.parent in data.children:
            data.children[spec.parent].remove(id)
        del data.runs[id]
        data.accounts.pop(id, None)
        data.boards.pop(id, None)
    for id in tree:
        del data.conversations[id]
    for other in data.conversations.values():
        other.below = [id for id in other.below if id not in tree]
    data.mail = {key: mail for key, mail in data.mail.items() if key[0] not in gone}
    data.deliveries = {key: d for key, d in data.deliveries.items() if d.run not in gone}
    trees = {root for root in gone if not any(spec.root == root for spec in data.specs.values())}
    lost = (*said, *(row.entry for row in data.log if row.tree in trees)) if data.artifacts else ()
    named = artifact_names(data, lost) - data.waiting.keys()
    data.log = [
        msgspec.structs.replace(row, entry=None) if row.run in gone else row
        for row in data.log
        if row.tree not in trees
    ]
    if named:
        collect_artifacts(data, named)


def artifact_names(data: MemoryData, values: Iterable[object]) -> set[str]:
    """The artifacts that these name."""
    return {name for value in values for name in names_in(dumps(value)) if name in data.artifacts}


def name_artifacts(data: MemoryData, changes: Changes) -> None:
    """What waits for the commit that names it may have found it."""
    found = artifact_names(data, changes.entries)
    data.waiting = {
        name: left - 1 for name, left in data.waiting.items() if name not in found and left
    }


def collect_artifacts(data: MemoryData, names: set[str]) -> None:
    """Delete those that nothing names any more."""
    said = (
        message
        for conversation in data.conversations.values()
        for message in conversation.messages.values()
    )
    boards = (noted for board in data.boards.values() for noted in board.values())
    left = (
        *(row.entry for row in data.log),
        *data.runs.values(),
        *said,
        *boards,
        *data.mail.values(),
    )
    for name in names - artifact_names(data, left):
        del data.artifacts[name]


def run_summary(spec: Spec, data: MemoryData) -> Summary:
    run = data.runs[spec.id]
    ending = ending_of(run)
    return Summary(
        id=spec.id,
        root=spec.root,
        parent=spec.parent,
        label=spec.order.label or spec.order.agent,
        state=ending.state if ending else type(run.state).__name__.lower(),
        created_at=spec.created_at,
        ended_at=ending.at if ending else None,
        user_initiated=not spec.parent,
        group=spec.order.shown_group,
    )
