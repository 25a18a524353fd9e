"""The store of one tree, as its engine sees it: everything is read as it is on record, and a commit
is written only as long as the tree is owned by this worker.

What was put into the tree's inbox leaves it in the commit that records its event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from retinue.cluster.interim import Interim
from retinue.cluster.notices import ANSWERED, CHANNEL, ENDED
from retinue.cluster.ownership import Held
from retinue.core.changes import Changes
from retinue.core.events import (
    AgentRegistered,
    AnyEvent,
    Closed,
    LogEntry,
    ModelRegistered,
    Opened,
)
from retinue.core.state import Ended
from retinue.errors import StoreError
from retinue.store.base import Snapshot
from retinue.store.sent_calls import SentCalls

OF_THE_NODE = (Opened, Closed, AgentRegistered, ModelRegistered)
"""Events that one process has for itself: a tree has none of them."""
TAKE_OUT = "delete from inbox where n = any(%s)"
REFUSE = "insert into refusals (n, why) select * from unnest(%s::bigint[], %s::text[])"
NOTIFY = f"select pg_notify('{CHANNEL}' || current_schema(), %s)"
IN_A_NOTICE = 200

Statement = tuple[str, tuple[Any, ...]]


class TreeStore:
    """`is_valid`: whether the lease of this worker has not run out."""

    def __init__(self, database: Interim, held: Held, is_valid: Callable[[], bool]) -> None:
        self._database, self.held, self._is_valid = database, held, is_valid
        self.sent = SentCalls()
        self._expected: dict[int, AnyEvent] = {}
        self._is_shut = False
        self._position = 0
        self.written: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    # what comes from the inbox

    def expect(self, number: int, event: AnyEvent) -> None:
        """An event that was put into the inbox under this number was given to the engine."""
        self._expected[number] = event

    def is_expected(self, number: int) -> bool:
        return number in self._expected

    async def drop(self, number: int, why: str) -> None:
        """The event is in no commit: it met a defect."""
        del self._expected[number]
        await self._write(Changes(), [(number, why)], [])

    # the store

    async def open(self) -> int:
        return self.held.epoch

    async def load(self) -> Snapshot:
        snapshot = await self._database.load(self.held.root)
        self._position = snapshot.last_seq
        self.sent.keep(
            self.held.epoch, {row.spec.id: row.run.epoch for row in snapshot.open}
        )
        return snapshot

    async def commit(self, changes: Changes) -> int:
        own = [entry for entry in changes.entries if not isinstance(entry.event, OF_THE_NODE)]
        if not own and not changes.runs and not changes.deliveries:
            return self._position
        root = self.held.root
        whole = replace(
            changes,
            entries=[entry if entry.tree else replace(entry, tree=root) for entry in own],
            definitions=[],
            models=[],
        )
        over = [
            id for id, run in changes.runs.items() if isinstance(run.state, Ended) and id == root
        ]
        answered = self._answered(own)
        self._position = await self._write(whole, answered, over)
        for number, _ in answered:
            self._expected.pop(number, None)
        self.written()
        if not self._is_valid():
            raise self._lost()
        return self._position

    def _answered(self, entries: list[LogEntry]) -> list[tuple[int, str]]:
        """What is recorded of that which was in the inbox: its number, and why it was refused."""
        if not self._expected:
            return []
        stale = {id(entry.event): entry.stale for entry in entries}
        return [
            (number, stale[id(event)])
            for number, event in self._expected.items()
            if id(event) in stale
        ]

    async def _write(
        self, changes: Changes, answered: list[tuple[int, str]], over: list[str]
    ) -> int:
        if self._is_shut or not self._is_valid():
            raise self._lost()
        statements = [*_leaving(answered)]
        if over:
            statements.append((NOTIFY, (f"{ENDED} {' '.join(over)}",)))
        held = self.held
        return await self._database.commit_tree(held.root, held.epoch, changes, statements)

    def _lost(self) -> StoreError:
        return StoreError(
            f"The tree {self.held.root} is no longer driven by this worker. Nothing was saved. "
            "It continues on another one."
        )

    def shut(self) -> None:
        """Nothing more is written."""
        self._is_shut = True

    async def close(self) -> None:
        self.shut()


def _leaving(answered: list[tuple[int, str]]) -> list[Statement]:
    """Take rows out of the inbox, keep why they were refused, and notify who waits for it."""
    if not answered:
        return []
    numbers = [number for number, _ in answered]
    refused = [(number, why) for number, why in answered if why]
    out: list[Statement] = [(TAKE_OUT, (numbers,))]
    if refused:
        out.append((REFUSE, ([n for n, _ in refused], [why for _, why in refused])))
    for start in range(0, len(numbers), IN_A_NOTICE):
        some = " ".join(map(str, numbers[start : start + IN_A_NOTICE]))
        out.append((NOTIFY, (f"{ANSWERED} {some}",)))
    return out


def open_database(url: str) -> Interim:
    return Interim(url)
