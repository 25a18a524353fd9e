"""The log in memory: the same contract in dictionaries, for tests, benchmarks and runs that need
not survive."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from hashlib import sha256 as hash_of
from itertools import islice, takewhile

import msgspec

from retinue.core.account import Account
from retinue.core.changes import Changes
from retinue.core.events import LogEntry, Requested
from retinue.core.messages import Message
from retinue.core.spec import Base, Spec
from retinue.core.state import Ended, Run
from retinue.core.task_list import Act, Noted
from retinue.core.values import Artifact, Definition, Delivery, Mail, ModelInfo
from retinue.errors import NotFound, StoreError
from retinue.store.artifact_files import names_in
from retinue.store.base import Compacted, Progress, Row, Snapshot, Space, Store, Summary
from retinue.store.sent_calls import SentCalls

PATIENCE = 1_000
"""For how many commits the one that names a new artifact is waited for; after that it is kept for
good."""

dumps = msgspec.json.Encoder(enc_hook=repr).encode


class _Conversation:
    __slots__ = ("base", "below", "messages")

    def __init__(self, base: Base | None) -> None:
        self.base = base
        self.below: list[str] = []
        self.messages: dict[int, Message] = {}


class _Logged(msgspec.Struct, frozen=True, gc=False):
    """One event: its position, its tree and its number there, its run. A purged one has None
    instead of its entry."""

    seq: int
    tree: str
    number: int
    run: str
    entry: LogEntry | None


class _Data:
    """What survives the handle. `trees` are the numbers of the last events; a forgotten tree keeps
    its own."""

    def __init__(self) -> None:
        self.epoch = 0
        self.seq = 0
        self.log: list[_Logged] = []
        self.trees: dict[str, int] = {}
        self.waiting: dict[str, int] = {}
        self.conversations: dict[str, _Conversation] = {}
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


class MemoryStore(Store):
    """A commit assigns and appends, nothing more: values are shared as they are."""

    def __init__(self) -> None:
        self._data = _Data()
        self._epoch = -1
        self.sent = self._data.sent

    def survivor(self) -> MemoryStore:
        """What a crash leaves: another handle on the same data. Once it is opened, this one's
        commits are refused."""
        other = MemoryStore()
        other._data, other.sent = self._data, self.sent
        return other

    async def open(self) -> int:
        self._data.epoch += 1
        self._epoch = self._data.epoch
        return self._epoch

    async def commit(self, changes: Changes) -> int:
        data = self._data
        self._fence()
        self._check(changes)
        for spec in changes.specs:
            _add(data, spec)
        data.runs.update(changes.runs)
        conversations = data.conversations
        for conversation, n, message in changes.messages:
            conversations[conversation].messages[n] = message
        data.accounts.update(changes.accounts)
        data.mail.update(changes.posted)
        for key in changes.taken:
            data.mail.pop(key, None)
        data.deliveries.update(changes.deliveries)
        for definition in changes.definitions:
            data.definitions[definition.name] = definition
        for model in changes.models:
            data.models[model.name] = model
        seq, trees, log = data.seq, data.trees, data.log
        for entry in changes.entries:
            seq += 1
            tree, event = entry.tree, entry.event
            number = trees[tree] = trees.get(tree, 0) + 1
            # A request counts as the first row of its run, so that it is listed and purged with it.
            log.append(
                _Logged(
                    seq, tree, number, event.id if type(event) is Requested else entry.run, entry
                )
            )
        data.seq = seq
        if data.waiting:
            _name(data, changes)
        for root in changes.forgotten:
            _forget(data, root)
        return seq

    def _fence(self) -> None:
        if self._epoch != self._data.epoch:
            raise StoreError(
                f"The store was taken over (epoch {self._data.epoch}, this handle has "
                f"{self._epoch}), or is not open. "
                "Nothing of this batch was kept. Open it again."
            )

    def _check(self, changes: Changes) -> None:
        """Refuse before the first change."""
        data = self._data
        for spec in changes.specs:
            if spec.id in data.specs:
                raise StoreError(
                    f"A run with the id {spec.id} is there already. Nothing of this batch was kept."
                )
        for root in changes.forgotten:
            for id in _runs_below(data, root):
                if not isinstance(changes.runs.get(id, data.runs[id]).state, Ended):
                    raise StoreError(
                        f"{root} cannot be deleted: {id} is still open in it. Nothing was changed."
                    )

    async def load(self) -> Snapshot:
        data = self._data
        alive = {id: run for id, run in data.runs.items() if not isinstance(run.state, Ended)}
        above: dict[str, None] = {}
        for id in alive:
            parent = data.specs[id].parent
            while parent and parent not in above and parent in data.specs:
                above[parent] = None
                parent = data.specs[parent].parent
        back = [
            child
            for id, run in alive.items()
            for child in data.children.get(id, ())
            if child not in alive
            and (slot := data.specs[child].slot) is not None
            and slot.turn == run.turn
        ]
        return Snapshot(
            open=self._rows(alive),
            back=self._rows(back),
            above=self._rows(id for id in above if id not in alive),
            accounts=[_copy(data.accounts[id]) for id in {**alive, **above} if id in data.accounts],
            mail=[(key[0], mail) for key, mail in sorted(data.mail.items()) if key[0] in alive],
            deliveries=await self.deliveries(("pending", "sent", "dead")),
            definitions=list(data.definitions.values()),
            models=list(data.models.values()),
            last_seq=data.seq,
        )

    def _rows(self, ids: Iterable[str]) -> list[Row]:
        return [Row(self._data.specs[id], self._data.runs[id]) for id in ids]

    async def row(self, id: str) -> Row | None:
        return Row(self._data.specs[id], self._data.runs[id]) if id in self._data.specs else None

    async def known(self, ids: Iterable[str]) -> set[str]:
        return {id for id in ids if id in self._data.specs}

    async def account(self, id: str) -> Account | None:
        account = self._data.accounts.get(id)
        return _copy(account) if account is not None else None

    async def children(self, parent: str) -> list[Row]:
        return self._rows(self._data.children.get(parent, ()))

    async def started(self, since: int) -> list[Row]:
        newest = takewhile(lambda s: s.created_at >= since, reversed(self._data.specs.values()))
        return self._rows(s.id for s in reversed(list(newest)) if s.parent)

    async def messages(
        self, conversation: str, start: int = 0, stop: int | None = None
    ) -> list[Message]:
        return [message for _, message in sorted(_span(self._data, conversation, start, stop))]

    async def entries(
        self, after: int = 0, run: str = "", limit: int = 1_000, *, tree: str | None = None
    ) -> list[tuple[int, LogEntry]]:
        log = self._data.log
        first = 0 if tree is not None else bisect_right(log, after, key=lambda row: row.seq)
        wanted = (
            (row.seq if tree is None else row.number, row.entry)
            for row in islice(log, first, None)
            if row.entry is not None
            and (not run or row.run == run)
            and (tree is None or (row.tree == tree and row.number > after))
        )
        return list(islice(wanted, limit))

    async def listing(
        self, *, children: bool = False, limit: int = 100, before: str = ""
    ) -> list[Summary]:
        newest = iter(reversed(self._data.specs.values()))
        if before:
            for spec in newest:
                if spec.id == before:
                    break
        return list(
            islice(
                (_summary(spec, self._data) for spec in newest if children or not spec.parent),
                limit,
            )
        )

    async def deliveries(self, states: Iterable[str] = ()) -> list[Delivery]:
        wanted = set(states)
        return [d for d in self._data.deliveries.values() if not wanted or d.state in wanted]

    async def board(self, root: str, after: int = 0) -> list[Noted]:
        return [one for one in self._data.boards.get(root, {}).values() if one.n > after]

    async def note(self, root: str, key: str, at: int, act: Act) -> None:
        self._fence()
        if root in self._data.specs:
            board = self._data.boards.setdefault(root, {})
            board.setdefault(key, Noted(n=len(board) + 1, key=key, act=act))

    async def verify(self) -> list[str]:
        return []

    async def space(self) -> Space:
        return Space(artifacts=sum(map(len, self._data.artifacts.values())))

    async def compact(
        self, *, rebuild: bool = False, progress: Progress | None = None
    ) -> Compacted:
        space = await self.space()
        return Compacted(space, space)

    async def expendable(
        self, *, before: int | None = None, beyond: int | None = None, limit: int = 100
    ) -> list[str]:
        ended = _ended(self._data)
        n_beyond = len(ended) - beyond if beyond is not None else 0
        wanted = [
            id
            for n, (at, id) in enumerate(ended)
            if n < n_beyond or (before is not None and at < before)
        ]
        return list(islice((id for id in wanted if not _is_held(self._data, id)), limit))

    async def thin(self, root: str) -> bool:
        return False

    async def backup(self, path: str) -> None:
        raise StoreError(
            f"{path} was not written: what is kept in memory cannot be copied. Use a store with a "
            "file."
        )

    async def put_artifact(self, data: bytes) -> Artifact:
        name = hash_of(data).hexdigest()
        self._data.artifacts[name] = bytes(data)
        self._data.waiting[name] = PATIENCE
        return Artifact(path=name, bytes=len(data), sha256=name)

    async def get_artifact(self, sha256: str, offset: int = 0, limit: int | None = None) -> bytes:
        data = self._data.artifacts.get(sha256)
        if data is None:
            raise NotFound(f"there is no artifact {sha256!r}")
        start = max(0, offset)
        return data[start:] if limit is None else data[start : start + max(0, limit)]

    async def close(self) -> None:
        self._epoch = -1


def _copy(account: Account) -> Account:
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


def _add(data: _Data, spec: Spec) -> None:
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
        data.conversations[spec.conversation] = _Conversation(base)
        if spec.parent:
            data.conversations[data.specs[spec.parent].conversation].below.append(spec.conversation)


def _span(
    data: _Data, conversation: str, start: int, stop: int | None
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


def _tree(data: _Data, root: str) -> dict[str, None]:
    """The conversation of a run and all below it."""
    spec = data.specs.get(root)
    tree = {spec.conversation: None} if spec is not None else {}
    todo = list(tree)
    while todo:
        below = data.conversations[todo.pop()].below
        tree.update(dict.fromkeys(below))
        todo.extend(below)
    return tree


def _runs_below(data: _Data, root: str) -> list[str]:
    tree = _tree(data, root)
    return [id for id, spec in data.specs.items() if spec.conversation in tree]


def _ended(data: _Data) -> list[tuple[int, str]]:
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


def _is_held(data: _Data, root: str) -> bool:
    """Whether somebody below is open, or something has not been announced yet."""
    runs = set(_runs_below(data, root))
    unsent = any(
        d.run in runs and d.state in ("pending", "sent", "dead") for d in data.deliveries.values()
    )
    return unsent or any(not isinstance(data.runs[id].state, Ended) for id in runs)


def _forget(data: _Data, root: str) -> None:
    """Delete the conversation of a run and everything below it; forks outside of it keep what they
    show."""
    tree = _tree(data, root)
    gone = dict.fromkeys(_runs_below(data, root))
    for id, conversation in data.conversations.items():
        base = conversation.base
        if base is not None and base.conversation in tree and id not in tree:
            conversation.messages = dict(sorted(_span(data, id, 0, None)))
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
    named = _names(data, lost) - data.waiting.keys()
    data.log = [
        msgspec.structs.replace(row, entry=None) if row.run in gone else row
        for row in data.log
        if row.tree not in trees
    ]
    if named:
        _collect(data, named)


def _names(data: _Data, values: Iterable[object]) -> set[str]:
    """The artifacts that these name."""
    return {name for value in values for name in names_in(dumps(value)) if name in data.artifacts}


def _name(data: _Data, changes: Changes) -> None:
    """What waits for the commit that names it may have found it."""
    found = _names(data, changes.entries)
    data.waiting = {
        name: left - 1 for name, left in data.waiting.items() if name not in found and left
    }


def _collect(data: _Data, names: set[str]) -> None:
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
    for name in names - _names(data, left):
        del data.artifacts[name]


def _summary(spec: Spec, data: _Data) -> Summary:
    run = data.runs[spec.id]
    ending = run.state.ending if isinstance(run.state, Ended) else None
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
