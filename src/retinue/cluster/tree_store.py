"""The store for one tree's engine: reads the whole record, and writes a commit only while this
worker owns the tree.

What was put into the tree's inbox leaves it in the commit that records its event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from retinue.cluster.node_notices import ANSWERED, CHANNEL, ENDED
from retinue.cluster.ownership import Held
from retinue.cluster.slots import Statement, statements
from retinue.cluster.tenant_budgets import SPENT
from retinue.core.changes import Changes
from retinue.core.effects import AskSlot, FreeSlot
from retinue.core.events import (
    AgentRegistered,
    AnyEvent,
    Closed,
    LogEntry,
    ModelRegistered,
    Opened,
)
from retinue.core.state import Ended
from retinue.errors import TreeTaken
from retinue.store.base import Snapshot
from retinue.store.postgres.database import PostgresDatabase
from retinue.store.postgres.postgres_store import PostgresTree
from retinue.store.row_batch import encode

OF_A_PROCESS = (Opened, Closed, AgentRegistered, ModelRegistered)
"""Events that a process has for itself: a tree has none of them."""
REFUSE = "insert into refusals (n, why) select * from unnest(%s::bigint[], %s::text[])"
NOTIFY = f"select pg_notify('{CHANNEL}' || current_schema(), %s)"
IN_A_NOTICE = 200


class TreeStore(PostgresTree):
    """`is_valid`: whether the lease of this worker has not run out."""

    def __init__(
        self, database: PostgresDatabase, tree: Held, is_valid: Callable[[], bool]
    ) -> None:
        super().__init__(database, tree.root, tree.epoch)
        self._is_valid, self._tenant = is_valid, tree.tenant
        self._expected: dict[int, AnyEvent] = {}
        self._is_shut = False
        self._position = 0
        self.written: Callable[[], None] = lambda: None

    # what comes from the inbox

    def expect(self, number: int, event: AnyEvent) -> None:
        """An event that was put into the inbox under this number was given to the engine."""
        self._expected[number] = event

    def is_expected(self, number: int) -> bool:
        return number in self._expected

    async def drop(self, number: int, why: str) -> None:
        """The event is in no commit: it met a defect."""
        del self._expected[number]
        await self._write(Changes(), [(number, why)])

    # the store

    async def load(self) -> Snapshot:
        snapshot = await super().load()
        self._position = snapshot.last_seq
        return snapshot

    async def commit(self, changes: Changes) -> int:
        own = [entry for entry in changes.entries if not isinstance(entry.event, OF_A_PROCESS)]
        if not own and not changes.runs and not changes.deliveries:
            return self._position
        whole = replace(changes, entries=own, definitions=[], models=[])
        top = changes.runs.get(self.root)
        over = self.root if top is not None and isinstance(top.state, Ended) else ""
        answered = self._answered(own)
        wishes = [e for e in changes.effects if isinstance(e, (AskSlot, FreeSlot))]
        also = statements(self.root, wishes) if wishes else []
        if self._tenant and (account := changes.accounts.get(self.root)) is not None:
            also.append((SPENT, (*account.spent[:2], self.root)))
        self._position = await self._write(whole, answered, over, also)
        for number, _ in answered:
            self._expected.pop(number, None)
        self.written()
        self._check()
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
        self,
        changes: Changes,
        answered: list[tuple[int, str]],
        over: str = "",
        own: Sequence[Statement] = (),
    ) -> int:
        self._check()
        also = [*own, *_answers(answered)]
        if over:
            also.append((NOTIFY, (f"{ENDED} {over}",)))
        return await self.database.commit(
            lambda: encode(changes),
            fence=self.root,
            epoch=self.epoch,
            line=self._line,
            inbox=[number for number, _ in answered],
            also=also,
        )

    def _check(self) -> None:
        if self._is_shut or not self._is_valid():
            raise TreeTaken(
                f"The tree {self.root} is no longer driven by this worker. It continues on "
                "another one, from what is on record."
            )

    async def note(self, root: str, key: str, at: int, act: Any) -> None:
        self._check()
        await super().note(root, key, at, act)

    def shut(self) -> None:
        """Nothing more is written."""
        self._is_shut = True

    async def close(self) -> None:
        self.shut()


def _answers(answered: list[tuple[int, str]]) -> list[Statement]:
    """Keep why things from the inbox were refused, and notify who waits for an answer."""
    out: list[Statement] = []
    refused = [(number, why) for number, why in answered if why]
    if refused:
        out.append((REFUSE, ([n for n, _ in refused], [why for _, why in refused])))
    for start in range(0, len(answered), IN_A_NOTICE):
        some = " ".join(str(number) for number, _ in answered[start : start + IN_A_NOTICE])
        out.append((NOTIFY, (f"{ANSWERED} {some}",)))
    return out
