"""The port to the log. One `commit` is one transaction: events, rows, messages, mail, accounts and
deliveries together.

A store is opened by one process at a time. What `commit` has returned from is durable; what it has
not is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from retinue.core.account import Account
from retinue.core.changes import Changes
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.state import RunRecord
from retinue.core.task_list import Act, Noted
from retinue.core.values import Artifact, Definition, Delivery, Mail, ModelInfo
from retinue.store.sent_calls import SentCalls


@dataclass(slots=True)
class Snapshot:
    """What a restart needs: it grows with the runs that are open, never with the log.

    `back` are ended children of a turn that is still open; `above` are ended ancestors of open
    runs."""

    open: list[RunRecord] = field(default_factory=list)
    back: list[RunRecord] = field(default_factory=list)
    above: list[RunRecord] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    mail: list[tuple[str, Mail]] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)
    models: list[ModelInfo] = field(default_factory=list)
    last_seq: int = 0


class RunLine(msgspec.Struct, frozen=True):
    """One line of a listing. `state` is the state's name in lower case, or how the run ended;
    `group` is the group of background work that it belongs to. `user` is who asked for it, and
    `meta` what the program said of it."""

    id: str
    root: str
    parent: str
    label: str
    state: str
    created_at: int
    ended_at: int | None
    user_initiated: bool
    group: str = ""
    agent: str = ""
    task: str = ""
    user: str = ""
    meta: dict[str, str] = msgspec.field(default_factory=dict)


class Space(msgspec.Struct, frozen=True):
    """Bytes: of the file with its -wal on disk, of what is kept in it, of the holes in it, and of
    the artifacts."""

    file: int = 0
    data: int = 0
    holes: int = 0
    artifacts: int = 0

    @property
    def used(self) -> int:
        """What would be left without any holes."""
        return self.data + self.artifacts


class Compacted(msgspec.Struct, frozen=True):
    """What a compaction has done. `is_old`: the file was made by an older version, and keeps its
    holes until it is rebuilt, which is done when nothing runs."""

    before: Space
    after: Space
    seconds: float = 0.0
    is_old: bool = False

    @property
    def freed(self) -> int:
        return self.before.file + self.before.artifacts - self.after.file - self.after.artifacts


Progress = Callable[[int, int], None]
"""How many pages are done, and of how many."""


class Store(Protocol):
    """Contract: tests/contracts/store.py, which every implementation runs. `sent` knows which model
    calls have left; it outlives a process, but not the machine."""

    sent: SentCalls
    beside: str = ""
    """Where files of this machine that belong to the store lie, each with a tail of its own; "" for
    none."""

    async def open(self) -> int:
        """Take the store over: lock it, bring its schema up to date, return the new epoch. Raises
        `StoreError`."""

    async def commit(self, changes: Changes) -> int:
        """Write all of it or nothing; returns the position of the last event over all trees.
        `StoreFull` leaves everything as it was. `changes` must no longer be changed. Commits are
        written in the order in which they were begun."""

    async def load(self) -> Snapshot:
        """Everything that is open."""

    async def row(self, id: str) -> RunRecord | None:
        """One run, open or ended."""

    async def known(self, ids: Iterable[str]) -> set[str]:
        """Those of these runs that are on record."""

    async def account(self, id: str) -> Account | None:
        """The account of a run, as of its last change."""

    async def children(self, parent: str) -> list[RunRecord]:
        """The children of a run, oldest first, open or ended."""

    async def started(self, since: int) -> list[RunRecord]:
        """Every run that a run has started at `since` or later, oldest first. It costs what it
        returns."""

    async def messages(
        self, conversation: str, start: int = 0, stop: int | None = None
    ) -> list[Message]:
        """Messages `start` to `stop` of a conversation, those of its base included."""

    async def entries(
        self, after: int = 0, run: str = "", limit: int = 1_000, *, tree: str | None = None
    ) -> list[tuple[int, LogEntry]]:
        """Rows of the log behind position `after`, of one run (its request included) or of all.
        With `tree` (the id of its root, or "" for what concerns the whole store) they are those of
        that tree, and `after` and the numbers are its own, from 1 on. Rows without a body are
        omitted."""

    async def listing(
        self,
        *,
        children: bool = False,
        limit: int = 100,
        before: str = "",
        states: Sequence[str] = (),
        since: int = 0,
    ) -> list[RunLine]:
        """Runs, newest first; those that a run started are hidden unless asked for. `before` is the
        last id of the page before. With `states` or `since`, only runs in these states, or created
        at that time or later."""

    async def deliveries(self, states: Iterable[str] = ()) -> list[Delivery]:
        """Deliveries in these states, or all."""

    async def task_list(self, root: str, after: int = 0) -> list[Noted]:
        """What was done to the to-do list of a tree behind act `after`, oldest first."""

    async def note(self, root: str, key: str, at: int, act: Act) -> None:
        """Keep one act on the to-do list of a tree; durable when it returns. A key counts once, its
        first act stays; an act on a tree that was forgotten is dropped."""

    async def verify(self) -> list[str]:
        """Walk the hash chain of each tree and the structure; one sentence for each thing that is
        wrong."""

    async def backup(self, path: str) -> None:
        """A consistent copy, made while the store is in use."""

    async def space(self) -> Space:
        """What the store takes on disk."""

    async def compact(
        self, *, rebuild: bool = False, progress: Progress | None = None
    ) -> Compacted:
        """Give what is free back to the disk, in steps between which others write; and delete
        artifacts that nothing names. `rebuild` writes a file of an older version anew if it must,
        in one step that holds up everyone."""

    async def expendable(
        self, *, before: int | None = None, beyond: int | None = None, limit: int = 100
    ) -> list[str]:
        """Roots of conversations in which everything has ended and is announced, the oldest end
        first: those that ended before a time, or all but the `beyond` newest. Forgetting one
        forgets its conversation."""

    async def thin(self, root: str) -> bool:
        """Delete a piece of a tree that is `expendable` and about to be forgotten, if it is too big
        to be forgotten in one short transaction. Returns whether there is more of it."""

    async def put_artifact(self, data: bytes) -> Artifact:
        """Keep bytes under their hash; durable when it returns; the same bytes are kept once."""

    async def get_artifact(self, sha256: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Bytes of an artifact. `NotFound` when there is none of that name."""

    async def artifact_roots(self, sha256: str) -> list[str]:
        """The root runs of the trees that name an artifact, in their messages or events."""

    async def close(self) -> None:
        """Close the store and release its lock."""


class StoreReader(Protocol):
    """A store that is only looked at, in the thread that asks, while others write to it."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def load(self) -> Snapshot: ...

    def row(self, id: str) -> RunRecord | None: ...

    def account(self, id: str) -> Account | None: ...

    def children(self, parent: str) -> list[RunRecord]: ...

    def messages(self, conversation: str, start: int, stop: int | None) -> list[Message]: ...

    def entries(
        self, after: int, run: str, limit: int, tree: str | None = None
    ) -> list[tuple[int, LogEntry]]: ...

    def deliveries(self, states: Iterable[str]) -> list[Delivery]: ...
