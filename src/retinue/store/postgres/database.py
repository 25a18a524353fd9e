"""An open database: connections for readers, one writer, and the trees that this process owns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.errors import StoreError
from retinue.formats.database_address import shown
from retinue.store.chains import genesis
from retinue.store.commit_group import CommitGroup, CommitLine
from retinue.store.postgres.connections import connect
from retinue.store.postgres.database_schema import migrate
from retinue.store.postgres.postgres_reader import PostgresReader
from retinue.store.postgres.postgres_rows import FencedBatch
from retinue.store.postgres.postgres_writer import PostgresWriter
from retinue.store.row_batch import RowBatch

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

T = TypeVar("T")

_FIRST = """
insert into trees (root, chain) values ('', %s) on conflict (root) do nothing"""
# A process that was cut off may come back: what it had must be newer then.
_FENCE = "update trees set epoch = epoch + 1, owner = null where owner is not null"
_WHOLE = """
update trees set epoch = (select max(epoch) from trees) + 1 where root = '' returning epoch"""
_SHARED = "update trees set epoch = epoch + 1 where root = '' returning epoch"
_TAKE = """
update trees set owner = %(owner)s, wake_at = null,
    epoch = greatest(epoch, (select epoch from trees where root = '')) + 1
where root = %(root)s returning epoch"""


class PostgresDatabase:
    """With `is_whole` this process alone has the database, and writes all trees at one epoch; else
    it is one of many workers, and writes the trees that it has taken. Calls that wait for the
    server are made in threads."""

    def __init__(self, url: str, *, is_whole: bool = False) -> None:
        self.url = url
        self.epoch = 0
        self._is_whole = is_whole
        self.reader = PostgresReader(url, is_shared=not is_whole)
        self._writer: PostgresWriter | None = None
        self._group: CommitGroup[FencedBatch] | None = None

    @property
    def is_open(self) -> bool:
        return self._group is not None

    async def open(self) -> int:
        """Bring the tables up to date and take the database, alone or with the other workers."""
        if self._group is not None:
            raise StoreError(f"{shown(self.url)} is already open.")
        writer = PostgresWriter(self.url, is_whole=self._is_whole)
        self.epoch = await asyncio.to_thread(self._open, writer)
        self.reader.open()
        self._writer, self._group = writer, CommitGroup(writer)
        return self.epoch

    def _open(self, writer: PostgresWriter) -> int:
        with connect(self.url) as db:
            migrate(db, self.url)
        writer.open()
        try:
            return writer.do(self._begin, "Nothing was changed.")
        except BaseException:
            writer.close()
            raise

    def _begin(self, db: Connection) -> int:
        if db.execute("select incomplete from store").fetchone() != (False,):
            raise StoreError(
                f"{shown(self.url)} is an unfinished copy of another store. Nothing was changed. "
                "Run `retinue migrate` again, or empty the database."
            )
        db.execute(_FIRST, (genesis(""),))
        if self._is_whole:
            db.execute(_FENCE)
        row = db.execute(_WHOLE if self._is_whole else _SHARED).fetchone()
        assert row is not None
        return int(row[0])

    async def take(self, root: str, owner: str | None = None) -> int:
        """Own a tree from now on: its new epoch. The worker that had it is refused."""

        def act(db: Connection) -> int:
            db.execute(
                "insert into trees (root, chain) values (%s, %s) on conflict (root) do nothing",
                (root, genesis(root)),
            )
            row = db.execute(_TAKE, {"root": root, "owner": owner}).fetchone()
            assert row is not None
            return int(row[0])

        return await self.alone(act)

    async def commit(
        self,
        rows: Callable[[], RowBatch],
        *,
        fence: str,
        epoch: int,
        line: CommitLine | None = None,
        inbox: Sequence[int] = (),
        also: Sequence[tuple[str, tuple[Any, ...]]] = (),
    ) -> int:
        """Behind the commits that wait; those of other trees share its transaction."""
        if self._group is None:
            raise self.closed()
        return await self._group.commit(
            lambda: FencedBatch(fence, epoch, rows(), inbox, also), line
        )

    async def alone(self, act: Callable[[Connection], T]) -> T:
        """A transaction on the writer's connection, between two commits."""
        writer, group = self._writer, self._group
        if writer is None or group is None:
            raise self.closed()
        return await group.do(lambda: writer.do(act))

    async def maintain(self, act: Callable[[Connection], T]) -> T:
        """Something long, on a connection of its own."""

        def work() -> T:
            with connect(self.url) as db:
                return act(db)

        return await asyncio.to_thread(work)

    async def close(self) -> None:
        writer, group = self._writer, self._group
        self._writer = self._group = None
        if writer is None or group is None:
            return
        await asyncio.to_thread(_stop, writer, group)
        self.reader.close()

    def drop(self) -> None:
        """Let go without closing anything, as a process that dies does."""
        writer, group = self._writer, self._group
        self._writer = self._group = None
        if writer is not None and group is not None:
            _stop(writer, group)
            self.reader.close()

    def closed(self) -> StoreError:
        return StoreError(f"{shown(self.url)} is not open. Nothing was changed.")


def _stop(writer: PostgresWriter, group: CommitGroup[FencedBatch]) -> None:
    writer.leave()
    group.stop()
    writer.close()


def now_ms() -> int:
    return int(time.time() * 1000)
