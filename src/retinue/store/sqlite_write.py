"""The one connection that writes, and the thread that shares its transactions among all who wait.

A batch is written whole or not at all. The number and hash of the last event are kept in memory and move only with a
commit that succeeded; after an error of the disk they are read again from a new connection, because an fsync that has
failed once says nothing when it is repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from hashlib import sha256
from queue import Empty, SimpleQueue
from struct import Struct
from threading import Thread

import apsw
import msgspec

from retinue.errors import StoreError
from retinue.store.sqlite_faults import commit_error, moved
from retinue.store.sqlite_open import Lock, connect, prepare, take_over
from retinue.store.sqlite_read import MESSAGES, SPAN
from retinue.store.sqlite_rows import INSERT_EVENTS, TABLES, Batch, merge

CHECK_SECONDS = 5.0
CHECKPOINT_PAGES = 1_000
MOST_COMMITS = 1_000

GENESIS = bytes(32)
_numbers = Struct(">qq").pack


def link(chain: bytes, seq: int, run: str, at: int, digest: bytes) -> bytes:
    """The hash that ties an event to all before it. The parts have fixed lengths, but for the last."""
    return sha256(chain + _numbers(seq, at) + digest + run.encode()).digest()


class Writer:
    """Owned by one thread at a time."""

    def __init__(self, path: str, synchronous: str) -> None:
        self.path = path
        self.epoch = 0
        self.seq = 0
        self._synchronous = synchronous
        self._lock = Lock(path)
        self._db: apsw.Connection | None = None
        self._chain = GENESIS
        self._files: tuple[tuple[int, int], ...] = ()
        self._checked = 0.0
        self._n_pages = 0

    def open(self) -> int:
        self._lock.acquire()
        try:
            db, self.epoch = take_over(self.path, self._synchronous)
        except BaseException:
            self._lock.release()
            raise
        self._files = self._identity()
        self._adopt(db)
        return self.epoch

    def _adopt(self, db: apsw.Connection) -> None:
        """Go on behind the last event that this connection sees."""
        db.set_wal_hook(self._note_pages)
        last = db.execute("select seq, chain from events order by seq desc limit 1").fetchone()
        self.seq, self._chain = last if last is not None else (0, GENESIS)
        self._db = db

    def _note_pages(self, _db: apsw.Connection, _name: str, n_pages: int) -> int:
        self._n_pages = n_pages
        return apsw.SQLITE_OK

    def write(self, batches: list[Batch]) -> list[int]:
        """One transaction for all of them. Returns the number of the last event of each."""
        try:
            db = self._ready()
            db.execute("BEGIN IMMEDIATE")
            epoch = db.execute("select value from meta where key = 'epoch'").get
            if epoch != self.epoch:
                raise StoreError(
                    f"{self.path} was taken over by another process (epoch {epoch}, this one has {self.epoch}). "
                    "Nothing of this batch was kept. Stop this process."
                )
            batch = batches[0] if len(batches) == 1 else merge(batches)
            seq, chain = self._write(db, batch)
            db.execute("COMMIT")
        except StoreError as error:
            self._undo(error)
            raise
        except Exception as error:
            self._undo(error)
            raise commit_error(error, self.path) from error
        first, self.seq, self._chain = self.seq, seq, chain
        lasts = []
        for one in batches:
            first += len(one.events)
            lasts.append(first)
        return lasts

    def _write(self, db: apsw.Connection, batch: Batch) -> tuple[int, bytes]:
        if batch.resumed:
            known = batch.resumed
            for id, row in batch.conversations.items():
                parent = row[1]
                if isinstance(parent, str) and parent in known:
                    batch.conversations[id] = (row[0], known[parent], *row[2:])
        for name, write_rows in TABLES.items():
            rows = getattr(batch, name)
            if rows:
                write_rows(db, rows.values() if type(rows) is dict else rows)
        seq, chain = self.seq, self._chain
        events = []
        for run, at, body, digest in batch.events:
            seq += 1
            chain = link(chain, seq, run, at, digest)
            events.append((seq, run, at, body, digest, chain))
        if events:
            INSERT_EVENTS(db, events)
        for root in batch.forgotten:
            forget(db, root)
        return seq, chain

    def _ready(self) -> apsw.Connection:
        """The connection, if the files are still the ones that were opened. After an error of the disk: a new one."""
        now = time.monotonic()
        if now - self._checked >= CHECK_SECONDS or self._db is None:
            if not self._files:
                raise StoreError(f"{self.path} is not open.")
            if self._identity() != self._files:
                raise moved(self.path)
            self._checked = now
        if self._db is None:
            db = connect(self.path)
            try:
                prepare(db, self.path, self._synchronous)
                self._adopt(db)
            except BaseException:
                db.close(True)
                raise
        assert self._db is not None
        return self._db

    def _identity(self) -> tuple[tuple[int, int], ...]:
        out = []
        for name in (self.path, self.path + "-wal"):
            try:
                stat = os.stat(name)
                out.append((stat.st_dev, stat.st_ino))
            except OSError:
                out.append((0, 0))
        return tuple(out)

    def _undo(self, error: Exception) -> None:
        db = self._db
        if db is None:
            return
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except apsw.Error as another:
            error = another
        if isinstance(error, apsw.IOError):
            self._db = None
            db.close(True)

    def tidy(self) -> None:
        """Move what the WAL holds into the file when there is enough of it. Nobody waits for this."""
        if self._n_pages < CHECKPOINT_PAGES or self._db is None:
            return
        try:
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._n_pages = 0
        except Exception as error:  # everything is in the WAL still; the next commit tries again
            self._undo(error)

    def close(self, *, tell: bool = True) -> None:
        """Let go. `tell` leaves the file complete and marked as closed; without it this is what a crash leaves."""
        db, self._db, self._files = self._db, None, ()
        if db is not None and tell:
            with contextlib.suppress(apsw.Error):
                ours = "(select value from meta where key = 'epoch') = ?"
                db.execute(f"delete from meta where key = 'home' and {ours}", (self.epoch,))
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        if db is not None:
            db.close(True)
        self._lock.release()


def forget(db: apsw.Connection, root: str) -> None:
    """Delete the conversation of a run and everything below it. Its events lose their bodies and stay in the chain."""
    tree = [id for (id,) in db.execute(TREE, (root,))]
    if not tree:
        return
    names = msgspec.json.encode(tree).decode()
    runs = db.execute(f"select id, open from runs where conversation in {LISTED}", (names,)).fetchall()
    still_open = [id for id, is_open in runs if is_open]
    if still_open:
        raise StoreError(f"{root} cannot be deleted: {still_open[0]} is still open in it. Nothing was changed.")
    inside = set(tree)
    forks = db.execute(f"select id, base_id, base_length from conversations where base_id in {LISTED}", (names,))
    for id, base, length in forks.fetchall():
        if id not in inside:
            span = {"conversation": base, "start": 0, "stop": length, "target": id}
            db.execute(f"insert into messages (conversation, n, body) {SPAN} {TARGET} {MESSAGES}", span)
            db.execute(
                "update conversations set base_id = null, base_length = null, base_start = null where id = ?", (id,)
            )
    ids = msgspec.json.encode([id for id, _ in runs]).decode()
    owners = f"(select n from runs where id in {LISTED})"
    db.execute(f"update events set body = null where owner in {owners}", (ids,))
    for table, key in (("accounts", "id"), ("mail", "run"), ("outbox", "run")):
        db.execute(f"delete from {table} where {key} in {LISTED}", (ids,))
    db.execute("delete from conversations where id = ?", (tree[0],))


TARGET = "select (select n from conversations where id = :target), messages.n, messages.body"
LISTED = "(select value from json_each(?))"
TREE = """
with recursive tree (id) as (
    select conversation from runs where id = ?
    union
    select c.id from tree join conversations c on c.parent_id = tree.id
)
select id from tree
"""


@dataclass(slots=True)
class Job:
    """A commit that waits. `era` counts the failures that its caller had heard of."""

    batch: Batch
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[int]
    era: int


class Group:
    """Commits that wait at the same time share one transaction, and its fsync.

    When one fails, all that were sent behind it fail too, up to the moment when the callers have heard of it: else a
    later batch could be written before an earlier one that is tried again.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._era = 0
        self._thread = Thread(target=self._work, name="retinue-store-writer", daemon=True)
        self._thread.start()

    async def commit(self, batch: Batch) -> int:
        loop = asyncio.get_running_loop()
        job = Job(batch, loop, loop.create_future(), self._era)
        self._queue.put(job)
        return await job.future

    def stop(self) -> None:
        """Finish what waits, then end the thread. Blocks."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        era, failure = 0, StoreError()
        stop = False
        while not stop:
            jobs, stop = self._next()
            batches = [job.batch for job in jobs if job.era == era]
            outcomes: list[int | StoreError]
            try:
                lasts = iter(self._writer.write(batches) if batches else ())
                outcomes = [next(lasts) if job.era == era else failure for job in jobs]
            except StoreError as error:
                era, failure = era + 1, error
                outcomes = [failure] * len(jobs)
            self._tell(jobs, outcomes, era)
            if not stop:
                self._writer.tidy()

    def _next(self) -> tuple[list[Job], bool]:
        job = self._queue.get()
        jobs: list[Job] = []
        while job is not None:
            jobs.append(job)
            if len(jobs) == MOST_COMMITS:
                return jobs, False
            try:
                job = self._queue.get_nowait()
            except Empty:
                return jobs, False
        return jobs, True

    def _tell(self, jobs: list[Job], outcomes: list[int | StoreError], era: int) -> None:
        """One call into each loop that has somebody waiting."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[int], int | StoreError]]] = {}
        for job, outcome in zip(jobs, outcomes, strict=True):
            loops.setdefault(job.loop, []).append((job.future, outcome))
        for loop, told in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._hear, told, era)

    def _hear(self, outcomes: list[tuple[asyncio.Future[int], int | StoreError]], era: int) -> None:
        self._era = max(self._era, era)
        for future, outcome in outcomes:
            if future.done():
                continue
            if isinstance(outcome, StoreError):
                future.set_exception(type(outcome)(*outcome.args))
            else:
                future.set_result(outcome)
