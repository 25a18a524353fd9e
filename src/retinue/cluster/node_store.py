"""The database as clients of a node see it: all of it can be read, and only rows outside of trees
can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.core.changes import Changes
from retinue.errors import StoreError
from retinue.formats.database_address import shown
from retinue.store.base import Snapshot
from retinue.store.postgres.database import PostgresDatabase
from retinue.store.postgres.postgres_store import PostgresRecord, PostgresTree
from retinue.store.row_batch import encode

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

T = TypeVar("T")
KNOW = """
insert into {table} (name, body) select * from unnest(%s::text[], %s::bytea[])
on conflict (name) do update set body = excluded.body where {table}.body <> excluded.body"""


class NodeStore(PostgresRecord):
    """All nodes can have one at the same time."""

    def __init__(self, url: str) -> None:
        super().__init__(PostgresDatabase(url), "")

    @property
    def path(self) -> str:
        """Its address, without a password."""
        return str(shown(self.database.url))

    async def open(self) -> int:
        if not self.database.is_open:
            await self.database.open()
        return 0

    async def commit(self, changes: Changes) -> int:
        """Agents and models, and trees that are forgotten."""
        rows = encode(Changes(definitions=changes.definitions, models=changes.models))

        def act(db: Connection) -> None:
            for table, stored_rows in (("definitions", rows.definitions), ("models", rows.models)):
                if stored_rows:
                    names, bodies = zip(*stored_rows.values(), strict=True)
                    db.execute(KNOW.format(table=table), (list(names), list(bodies)))

        if rows.definitions or rows.models:
            await self.database.alone(act)
        for root in changes.forgotten:
            await self._forget(root, changes)
        return 0

    async def _forget(self, root: str, changes: Changes) -> None:
        """A tree that has ended is taken to be deleted, so that no worker can have it."""
        epoch = await self.database.take(root)
        tree = PostgresTree(self.database, root, epoch)
        entries = [entry for entry in changes.entries if entry.tree in ("", root)]
        await tree.commit(Changes(forgotten=[root], entries=entries))

    async def snapshot(self, root: str = "") -> Snapshot:
        """What is open in one tree, or in all."""
        return await self._ask(lambda: self._reader.load(root or None))

    async def position(self) -> int:
        """The last position over all trees."""
        return await self._ask(self._reader.position)

    async def safe_position(self) -> int:
        """The position up to which nothing is still on its way."""
        return await self._ask(self._reader.safe_position)

    async def known_agents(self) -> Snapshot:
        """The agents and models that are known, and nothing else."""
        return await self._ask(self._reader.agents)

    async def _alone(self, act: Callable[[Connection], T]) -> T:
        """What belongs to no tree needs no fence."""
        return await self.database.alone(act)

    async def note(self, root: str, key: str, at: int, act: Any) -> None:
        raise StoreError("The to-do list of a tree is written by the worker that drives it.")

    async def close(self) -> None:
        if self.database.is_open:
            await self.database.close()
