"""The store in PostgreSQL, as the runtime sees it: `PostgresStore` is all of it for one process,
`PostgresTree` one tree for one of many workers. Both read the same tables and write through the
same group of commits; they differ in what they load and in the epoch that fences their commits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256 as hash_of
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.core.account import Account
from retinue.core.changes import Changes
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.state import RunRecord
from retinue.core.task_list import Act, Noted
from retinue.core.values import Artifact, Delivery
from retinue.errors import NotFound, StoreCorrupt, StoreError
from retinue.formats.database_address import passwords, shown
from retinue.store.artifact_files import is_artifact_name
from retinue.store.base import Compacted, Progress, RunLine, Snapshot, Space, Store
from retinue.store.commit_group import CommitLine
from retinue.store.postgres.database import PostgresDatabase, now_ms
from retinue.store.row_batch import encode, encode_act
from retinue.store.sent_calls import SentCalls

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

T = TypeVar("T")
UNNAMED = """
delete from artifacts a where a.waiting_since < now() - interval '1 hour'
and not exists (select 1 from artifact_refs r where r.sha256 = a.sha256)"""


class PostgresRecord(Store):
    """What both have in common. `_fence` is the tree whose epoch is compared with every commit, ""
    for the whole store."""

    def __init__(self, database: PostgresDatabase, fence: str) -> None:
        self.database = database
        self.epoch = 0
        self._fence = fence
        self._reader = database.reader
        self._line = CommitLine()
        self._inbox: list[int] = []
        self.sent = SentCalls()

    @property
    def secrets(self) -> dict[str, str]:
        """What nothing that is written may have of its address."""
        return {f"database {n}": one for n, one in enumerate(passwords(self.database.url))}

    async def open(self) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def commit(self, changes: Changes) -> int:
        inbox, self._inbox = self._inbox, []
        try:
            return await self.database.commit(
                lambda: encode(changes),
                fence=self._fence,
                epoch=self.epoch,
                line=self._line,
                inbox=inbox,
            )
        except StoreError:
            self._inbox = inbox + self._inbox
            raise

    async def note(self, root: str, key: str, at: int, act: Act) -> None:
        await self.database.commit(
            lambda: encode_act(root, key, at, act),
            fence=self._fence,
            epoch=self.epoch,
            line=self._line,
        )

    async def load(self) -> Snapshot:
        snapshot = await self._ask(lambda: self._reader.load(self._fence or None))
        self.sent.keep(self.epoch, {row.spec.id: row.run.epoch for row in snapshot.open})
        return snapshot

    async def row(self, id: str) -> RunRecord | None:
        return await self._ask(lambda: self._reader.row(id))

    async def known(self, ids: Iterable[str]) -> set[str]:
        listed = list(ids)
        return await self._ask(lambda: self._reader.known(listed))

    async def account(self, id: str) -> Account | None:
        return await self._ask(lambda: self._reader.account(id))

    async def children(self, parent: str) -> list[RunRecord]:
        return await self._ask(lambda: self._reader.children(parent))

    async def started(self, since: int) -> list[RunRecord]:
        return await self._ask(lambda: self._reader.started(since))

    async def messages(
        self, conversation: str, start: int = 0, stop: int | None = None
    ) -> list[Message]:
        return await self._ask(lambda: self._reader.messages(conversation, start, stop))

    async def entries(
        self, after: int = 0, run: str = "", limit: int = 1_000, *, tree: str | None = None
    ) -> list[tuple[int, LogEntry]]:
        return await self._ask(lambda: self._reader.entries(after, run, limit, tree))

    async def listing(
        self,
        *,
        children: bool = False,
        limit: int = 100,
        before: str = "",
        states: Sequence[str] = (),
        since: int = 0,
    ) -> list[RunLine]:
        return await self._ask(
            lambda: self._reader.listing(
                children=children, limit=limit, before=before, states=states, since=since
            )
        )

    async def deliveries(self, states: Iterable[str] = ()) -> list[Delivery]:
        listed = list(states)
        return await self._ask(lambda: self._reader.deliveries(listed))

    async def task_list(self, root: str, after: int = 0) -> list[Noted]:
        return await self._ask(lambda: self._reader.task_list(root, after))

    async def verify(self) -> list[str]:
        from retinue.store.postgres.postgres_integrity import verify

        return await self.database.maintain(lambda db: verify(db, self.database.url))

    async def backup(self, path: str) -> None:
        """As a SQLite file with its artifacts, which `retinue migrate` moves back."""
        raise StoreError(
            f"{path} was not written: a database is copied by its own programs. Use pg_dump, or "
            "`retinue migrate` to make a file of it."
        )

    async def space(self) -> Space:
        return await self._ask(self._reader.space)

    async def compact(
        self, *, rebuild: bool = False, progress: Progress | None = None
    ) -> Compacted:
        """Artifacts that nothing names are deleted. Space is given back by the server's autovacuum;
        `rebuild` does that now."""
        began, before = time.monotonic(), await self.space()
        await self.database.alone(lambda db: db.execute(UNNAMED).rowcount)
        if rebuild:
            await self.database.maintain(lambda db: db.execute("vacuum").rowcount)
        return Compacted(before, await self.space(), round(time.monotonic() - began, 3))

    async def expendable(
        self, *, before: int | None = None, beyond: int | None = None, limit: int = 100
    ) -> list[str]:
        return await self._ask(lambda: self._reader.expendable(before, beyond, limit))

    async def thin(self, root: str) -> bool:
        from retinue.store.postgres.postgres_deletion import thin

        return await self._alone(lambda db: thin(db.cursor(), root, now_ms()))

    async def put_artifact(self, data: bytes) -> Artifact:
        name = hash_of(data).hexdigest()
        sql = (
            "insert into artifacts (sha256, size, body) values (%s, %s, %b) on conflict (sha256) "
            "do update set waiting_since = now()"
        )
        args = (bytes.fromhex(name), len(data), data)
        await self._alone(lambda db: db.execute(sql, args).rowcount)
        return Artifact(path=name, size=len(data), sha256=name)

    async def get_artifact(self, sha256: str, offset: int = 0, limit: int | None = None) -> bytes:
        if not is_artifact_name(sha256):
            raise NotFound(f"{sha256!r} is not an artifact id. An id has 64 hexadecimal digits.")
        data = await self._ask(lambda: self._reader.artifact(sha256, offset, limit))
        if offset <= 0 and limit is None and hash_of(data).hexdigest() != sha256:
            raise StoreCorrupt(
                f"Artifact {sha256} does not match its hash. Nothing was changed. Restore a backup."
            )
        return data

    async def artifact_roots(self, sha256: str) -> list[str]:
        return await self._ask(lambda: self._reader.roots_naming(sha256))

    async def _alone(self, act: Callable[[Connection], T]) -> T:
        """A change beside the commits, fenced as they are."""

        def fenced(db: Connection) -> T:
            sql = "select epoch from trees where root = %s for key share"
            row = db.execute(sql, (self._fence,)).fetchone()
            if row != (self.epoch,):
                raise StoreError(
                    f"{shown(self.database.url)} was taken over by another process. Nothing was "
                    "changed. Stop this process."
                )
            return act(db)

        return await self.database.alone(fenced)

    async def _ask(self, ask: Callable[[], T]) -> T:
        return await asyncio.to_thread(ask)


class PostgresStore(PostgresRecord):
    """The whole store, in one process at a time. `beside` is where files of this machine that
    belong to it lie; without it, it is not known after a crash which model calls had left."""

    def __init__(self, url: str, *, beside: str = "") -> None:
        super().__init__(PostgresDatabase(url, is_whole=True), "")
        self.url, self.beside = url, beside

    @property
    def path(self) -> str:
        """Its address, without a password."""
        return shown(self.url)

    async def open(self) -> int:
        self.epoch = await self.database.open()
        id = await self._ask(lambda: self._reader.all("select id from store")[0][0])
        self.sent = SentCalls(self.beside, identity=id.int >> 64)
        self.sent.open()
        return self.epoch

    async def close(self) -> None:
        if self.database.is_open:
            await self.database.close()
            self.sent.close()

    def survivor(self) -> PostgresStore:
        """What a crash leaves: this handle lets go of the database, and another one may open it."""
        self.database.drop()
        self.sent.close()
        return PostgresStore(self.url, beside=self.beside)


class PostgresTree(PostgresRecord):
    """One tree, at the epoch at which this worker has taken it. Everything can be read; only what
    belongs to the tree is loaded and written. Commits of all trees of a worker share its
    transactions."""

    def __init__(self, database: PostgresDatabase, root: str, epoch: int = 0) -> None:
        super().__init__(database, root)
        self.root = root
        self.epoch = epoch

    async def open(self) -> int:
        """Take the tree, if that was not done."""
        if not self.epoch:
            self.epoch = await self.database.take(self.root)
        return self.epoch

    def leaves(self, *inbox: int) -> None:
        """These rows of the inbox are deleted by the next commit that begins. To be called in the
        same turn of the event loop as the step that takes them."""
        self._inbox += inbox

    async def close(self) -> None:
        """The database stays open, and the tree with its owner."""
