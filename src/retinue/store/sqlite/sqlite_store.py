"""The log in one SQLite file: one writer with group commit, WAL, full synchronisation, a lock and
an epoch against a second process, and a hash chain against silent damage. Artifacts are files
beside it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from retinue.core.account import Account
from retinue.core.changes import Changes
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.state import RunRecord
from retinue.core.task_list import Act, Noted
from retinue.core.values import Artifact, Delivery
from retinue.errors import ConfigError, StoreError
from retinue.store.artifact_files import Artifacts
from retinue.store.base import Compacted, Progress, RunLine, Snapshot, Space, Store
from retinue.store.commit_group import CommitGroup
from retinue.store.row_batch import RowBatch, encode, encode_act
from retinue.store.sent_calls import SentCalls
from retinue.store.sqlite.database_file import connect, copy_database
from retinue.store.sqlite.integrity import verify
from retinue.store.sqlite.reader import SqliteReader
from retinue.store.sqlite.sqlite_errors import reading
from retinue.store.sqlite.writer import SqliteWriter

STEP_PAGES = 256
"""How many pages are given back in one step: some milliseconds."""
PAGE_BYTES = 4_096
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")

T = TypeVar("T")


class SqliteStore(Store):
    """`inline` does everything in the calling thread, without a writer's thread: for simulations on
    virtual time.

    A commit is written even if the task that waits for it was cancelled. Reads are short and happen
    in the calling thread."""

    def __init__(
        self, path: str | os.PathLike[str], *, inline: bool = False, synchronous: str = "FULL"
    ) -> None:
        if synchronous not in SYNCHRONOUS:
            raise ConfigError(
                f"synchronous must be one of {', '.join(SYNCHRONOUS)}, not {synchronous!r}"
            )
        self.path = self.beside = os.path.abspath(path)
        self._inline = inline
        self._synchronous = synchronous
        self._artifacts = Artifacts(self.path + ".artifacts")
        self._reader = SqliteReader(self.path)
        self.sent = SentCalls(self.path)
        self._writer: SqliteWriter | None = None
        self._group: CommitGroup[RowBatch] | None = None

    async def open(self) -> int:
        if self._writer is not None:
            raise StoreError(f"{self.path} is already open.", path=self.path)
        writer = SqliteWriter(self.path, self._synchronous, self._artifacts)
        epoch = await self._apart(writer.open)
        try:
            with reading(self.path):
                self._reader.open()
        except StoreError:
            writer.close(tell=False)
            raise
        self._artifacts.sweep()
        self.sent.open()
        self._writer = writer
        self._group = None if self._inline else CommitGroup(writer)
        return epoch

    async def commit(self, changes: Changes) -> int:
        if self._writer is None:
            raise self._closed()
        return await self._write(
            self._writer, lambda: encode(changes, has_artifacts=self._artifacts.are_there())
        )

    async def _write(self, writer: SqliteWriter, rows: Callable[[], RowBatch]) -> int:
        if self._group is not None:
            return await self._group.commit(rows)
        (last,) = writer.write([rows()])
        writer.tidy()
        return last

    async def load(self) -> Snapshot:
        snapshot = self._reader.load()
        if self._writer is not None:
            self.sent.keep(
                self._writer.epoch, {row.spec.id: row.run.epoch for row in snapshot.open}
            )
        return snapshot

    async def row(self, id: str) -> RunRecord | None:
        return self._reader.row(id)

    async def known(self, ids: Iterable[str]) -> set[str]:
        return self._reader.known(ids)

    async def account(self, id: str) -> Account | None:
        return self._reader.account(id)

    async def children(self, parent: str) -> list[RunRecord]:
        return self._reader.children(parent)

    async def started(self, since: int) -> list[RunRecord]:
        return self._reader.started(since)

    async def messages(
        self, conversation: str, start: int = 0, stop: int | None = None
    ) -> list[Message]:
        return self._reader.messages(conversation, start, stop)

    async def entries(
        self, after: int = 0, run: str = "", limit: int = 1_000, *, tree: str | None = None
    ) -> list[tuple[int, LogEntry]]:
        return self._reader.entries(after, run, limit, tree)

    async def listing(
        self,
        *,
        children: bool = False,
        limit: int = 100,
        before: str = "",
        states: Sequence[str] = (),
        since: int = 0,
    ) -> list[RunLine]:
        return self._reader.listing(
            children=children, limit=limit, before=before, states=states, since=since
        )

    async def deliveries(self, states: Iterable[str] = ()) -> list[Delivery]:
        return self._reader.deliveries(states)

    async def task_list(self, root: str, after: int = 0) -> list[Noted]:
        return self._reader.task_list(root, after)

    async def note(self, root: str, key: str, at: int, act: Act) -> None:
        if self._writer is None:
            raise self._closed()
        await self._write(self._writer, lambda: encode_act(root, key, at, act))

    async def verify(self) -> list[str]:
        if self._writer is None:
            raise self._closed()
        return await self._apart(lambda: verify(self.path))

    async def backup(self, path: str) -> None:
        if self._writer is None:
            raise self._closed()
        await self._apart(lambda: self._copy(os.path.abspath(path)))

    def _copy(self, path: str) -> None:
        with self._artifacts.keep_while_copying():
            source = connect(self.path, read_only=True)
            try:
                copy_database(source, path)
            finally:
                source.close(True)
            # Behind the database: an artifact is there before the commit that names it.
            self._artifacts.copy(path + ".artifacts")

    async def space(self) -> Space:
        space = self._reader.space()
        return replace(space, artifacts=await self._apart(self._artifacts.size))

    async def compact(
        self, *, rebuild: bool = False, progress: Progress | None = None
    ) -> Compacted:
        writer = self._writer
        if writer is None:
            raise self._closed()
        began, before = time.monotonic(), await self.space()
        await self._apart(self._collect)
        is_old = await self._alone(lambda: writer.is_old)
        if is_old and rebuild:
            await self._alone(writer.rebuild)
            is_old = False
        total = holes = before.holes // PAGE_BYTES
        while holes and not is_old:
            less = await self._alone(lambda: writer.free(STEP_PAGES))
            if progress is not None:
                progress(total - min(less, total), total)
            if less >= holes:  # others free as fast as we do, or nothing can be moved now
                break
            holes = less
        await self._alone(writer.shrink)
        self.sent.trim()
        return Compacted(before, await self.space(), round(time.monotonic() - began, 3), is_old)

    def _collect(self) -> None:
        """Artifacts that a crash has left, which no one names."""
        reader = SqliteReader(self.path)
        reader.open()
        try:
            named = reader.named()
        finally:
            reader.close()
        self._artifacts.collect(list(self._artifacts.unnamed(named)))

    async def expendable(
        self, *, before: int | None = None, beyond: int | None = None, limit: int = 100
    ) -> list[str]:
        return await self._apart(lambda: self._expendable(before, beyond, limit))

    def _expendable(self, before: int | None, beyond: int | None, limit: int) -> list[str]:
        reader = SqliteReader(self.path)
        reader.open()
        try:
            return reader.expendable(before, beyond, limit)
        finally:
            reader.close()

    async def thin(self, root: str) -> bool:
        writer = self._writer
        if writer is None:
            raise self._closed()
        return await self._alone(lambda: writer.thin(root))

    async def put_artifact(self, data: bytes) -> Artifact:
        if self._writer is None:
            raise self._closed()
        return await self._apart(lambda: self._artifacts.put(data))

    async def get_artifact(self, sha256: str, offset: int = 0, limit: int | None = None) -> bytes:
        return await self._apart(lambda: self._artifacts.get(sha256, offset, limit))

    async def artifact_roots(self, sha256: str) -> list[str]:
        return self._reader.roots_naming(sha256)

    async def close(self) -> None:
        writer = self._writer
        group = self._group
        self._writer = None
        self._group = None
        if writer is None:
            return
        if group is not None:
            await self._apart(group.stop)
        self._reader.close()
        self.sent.close()
        await self._apart(writer.close)

    def survivor(self) -> SqliteStore:
        """What a crash leaves: this handle lets go of the file as it is, and another one may open
        it."""
        writer = self._writer
        group = self._group
        self._writer = None
        self._group = None
        if group is not None:
            group.stop()
        self._reader.close()
        self.sent.close()
        if writer is not None:
            writer.close(tell=False)
        return SqliteStore(self.path, inline=self._inline, synchronous=self._synchronous)

    def _closed(self) -> StoreError:
        return StoreError(f"{self.path} is not open. Nothing was changed.", path=self.path)

    async def _alone(self, act: Callable[[], T]) -> T:
        """What only the writer's connection can do, between two commits."""
        return act() if self._group is None else await self._group.do(act)

    async def _apart(self, act: Callable[[], T]) -> T:
        """What may take long does not hold up the loop."""
        return act() if self._inline else await asyncio.to_thread(act)
