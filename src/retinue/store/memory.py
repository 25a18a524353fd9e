"""The log in memory, with the same contract: for tests, benchmarks and runs that need not
be saved."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import sha256 as hash_of
from itertools import islice, takewhile

from msgspec.structs import replace

from retinue.core.account import Account
from retinue.core.changes import Changes
from retinue.core.events import LogEntry, Requested
from retinue.core.messages import Message
from retinue.core.state import Ended, RunRecord
from retinue.core.task_list import Act, Noted
from retinue.core.values import Artifact, Delivery
from retinue.errors import NotFound, StoreError
from retinue.store.base import Compacted, Progress, RunLine, Snapshot, Space, Store
from retinue.store.memory_data import (
    HeldEntry,
    MemoryData,
    add_run,
    ended_conversations,
    is_held,
    messages_in,
    run_summary,
    runs_below,
)
from retinue.store.memory_deletion import forget_tree, name_artifacts, roots_naming

PATIENCE = 1_000
"""For how many commits the one that names a new artifact is waited for; after that it is kept for
good."""


class MemoryStore(Store):
    """A commit assigns and appends, nothing more: values are shared as they are."""

    def __init__(self) -> None:
        self._data = MemoryData()
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
        if changes.specs or changes.forgotten:
            self._check(changes)
        for spec in changes.specs:
            add_run(data, spec)
        data.runs.update(changes.runs)
        conversations = data.conversations
        for conversation, n, message in changes.messages:
            conversations[conversation].messages[n] = message
        data.accounts.update(changes.accounts)
        if changes.posted:
            data.mail.update(changes.posted)
        for key in changes.taken:
            data.mail.pop(key, None)
        if changes.deliveries:
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
                HeldEntry(
                    seq, tree, number, event.id if type(event) is Requested else entry.run, entry
                )
            )
        data.seq = seq
        if data.waiting:
            name_artifacts(data, changes)
        for root in changes.forgotten:
            forget_tree(data, root)
        return seq

    def _fence(self) -> None:
        if self._epoch != self._data.epoch:
            raise StoreError(
                f"The store was taken over by another process (epoch {self._data.epoch}, "
                f"this handle has {self._epoch}), or it is not open. This batch was not "
                "saved. Open the store again."
            )

    def _check(self, changes: Changes) -> None:
        """Refuse before the first change."""
        data = self._data
        for spec in changes.specs:
            if spec.id in data.specs:
                raise StoreError(f"Run {spec.id} already exists. This batch was not saved.")
        for root in changes.forgotten:
            for id in runs_below(data, root):
                if not isinstance(changes.runs.get(id, data.runs[id]).state, Ended):
                    raise StoreError(
                        f"Cannot delete {root}: its run {id} is still open. Nothing was changed."
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
            and (slot := data.specs[child].parent_call) is not None
            and slot.turn == run.turn
        ]
        return Snapshot(
            open=self._rows(alive),
            back=self._rows(back),
            above=self._rows(id for id in above if id not in alive),
            accounts=[
                replace(data.accounts[id]) for id in {**alive, **above} if id in data.accounts
            ],
            mail=[(key[0], mail) for key, mail in sorted(data.mail.items()) if key[0] in alive],
            deliveries=await self.deliveries(("pending", "sent", "dead")),
            definitions=list(data.definitions.values()),
            models=list(data.models.values()),
            last_seq=data.seq,
        )

    def _rows(self, ids: Iterable[str]) -> list[RunRecord]:
        return [RunRecord(self._data.specs[id], self._data.runs[id]) for id in ids]

    async def row(self, id: str) -> RunRecord | None:
        return (
            RunRecord(self._data.specs[id], self._data.runs[id]) if id in self._data.specs else None
        )

    async def known(self, ids: Iterable[str]) -> set[str]:
        return {id for id in ids if id in self._data.specs}

    async def account(self, id: str) -> Account | None:
        account = self._data.accounts.get(id)
        return replace(account) if account is not None else None

    async def children(self, parent: str) -> list[RunRecord]:
        return self._rows(self._data.children.get(parent, ()))

    async def started(self, since: int) -> list[RunRecord]:
        newest = takewhile(lambda s: s.created_at >= since, reversed(self._data.specs.values()))
        return self._rows(s.id for s in reversed(list(newest)) if s.parent)

    async def messages(
        self, conversation: str, start: int = 0, stop: int | None = None
    ) -> list[Message]:
        return [
            message for _, message in sorted(messages_in(self._data, conversation, start, stop))
        ]

    async def entries(
        self, after: int = 0, run: str = "", limit: int = 1_000, *, tree: str | None = None
    ) -> list[tuple[int, LogEntry]]:
        log = self._data.log
        first = 0 if tree is not None else bisect_right(log, after, key=lambda row: row.seq)
        rows = (
            (row.seq if tree is None else row.number, row.entry)
            for row in islice(log, first, None)
            if row.entry is not None
            and (not run or row.run == run)
            and (tree is None or (row.tree == tree and row.number > after))
        )
        return list(islice(rows, limit))

    async def listing(
        self,
        *,
        children: bool = False,
        limit: int = 100,
        before: str = "",
        states: Sequence[str] = (),
        since: int = 0,
    ) -> list[RunLine]:
        newest = iter(reversed(self._data.specs.values()))
        if before:
            for spec in newest:
                if spec.id == before:
                    break
        lines = (run_summary(spec, self._data) for spec in newest if children or not spec.parent)
        fitting = (
            line
            for line in lines
            if line.created_at >= since and (not states or line.state in states)
        )
        return list(islice(fitting, limit))

    async def deliveries(self, states: Iterable[str] = ()) -> list[Delivery]:
        choice = set(states)
        return [d for d in self._data.deliveries.values() if not choice or d.state in choice]

    async def task_list(self, root: str, after: int = 0) -> list[Noted]:
        return [one for one in self._data.task_lists.get(root, {}).values() if one.n > after]

    async def note(self, root: str, key: str, at: int, act: Act) -> None:
        self._fence()
        if root in self._data.specs:
            task_list = self._data.task_lists.setdefault(root, {})
            task_list.setdefault(key, Noted(n=len(task_list) + 1, key=key, act=act))

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
        ended = ended_conversations(self._data)
        n_beyond = len(ended) - beyond if beyond is not None else 0
        candidates = [
            id
            for n, (at, id) in enumerate(ended)
            if n < n_beyond or (before is not None and at < before)
        ]
        return list(islice((id for id in candidates if not is_held(self._data, id)), limit))

    async def thin(self, root: str) -> bool:
        return False

    async def backup(self, path: str) -> None:
        raise StoreError(
            f"{path} was not written: a store in memory cannot be copied. Use a store with a file."
        )

    async def put_artifact(self, data: bytes) -> Artifact:
        name = hash_of(data).hexdigest()
        self._data.artifacts[name] = bytes(data)
        self._data.waiting[name] = PATIENCE
        return Artifact(path=name, size=len(data), sha256=name)

    async def get_artifact(self, sha256: str, offset: int = 0, limit: int | None = None) -> bytes:
        data = self._data.artifacts.get(sha256)
        if data is None:
            raise NotFound(f"Artifact {sha256} not found.", "artifact", sha256)
        start = max(0, offset)
        return data[start:] if limit is None else data[start : start + max(0, limit)]

    async def artifact_roots(self, sha256: str) -> list[str]:
        return roots_naming(self._data, sha256)

    async def close(self) -> None:
        self._epoch = -1
