"""The one connection of a process that writes. Commits of many trees are one transaction; a tree
that another worker has taken over is refused alone.

A connection that is cut while a transaction is being committed says nothing of its outcome. Each
transaction leaves its number in a row of this writer, which is read before anything else is done.
(The server's own numbers do not tell: after a crash it gives some of them to others.)"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from retinue.errors import StoreError, StoreLocked, StoreUnreachable, TreeTaken
from retinue.formats.database_address import shown
from retinue.store.postgres import postgres_errors as errors
from retinue.store.postgres.connections import connect
from retinue.store.postgres.postgres_rows import LOCK, FencedBatch, TreeHead, roots_of, write
from retinue.store.postgres.queries import HOLDERS, LAST_SEQ, MARK_WRITING, STORE_KEY

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("retinue.store")
T = TypeVar("T")

NOT_SAVED = "This batch was not saved."
KEPT = "This batch is not saved yet."
MOST_TRIES = 5
RECONNECT_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
LOCK_SECONDS = 1.0
"""How long a process that has just died is waited for."""


class PostgresWriter:
    """Owned by one thread at a time. `is_whole`: no one else may have the store; else it is shared
    with other workers, each of which has some trees."""

    def __init__(self, url: str, *, is_whole: bool) -> None:
        self.url = url
        self.seq = 0
        self._id, self._n = str(uuid4()), 0
        self._is_whole = is_whole
        self._db: psycopg.Connection[Any] | None = None
        self._is_open = self._is_leaving = False

    def open(self) -> None:
        self._db = self._connect()
        self._is_open = True

    def _connect(self) -> psycopg.Connection[Any]:
        """A connection that holds the store's lock: alone, or together with other workers."""
        name = f"retinue {os.getpid()} on {socket.gethostname()}"
        db = connect(self.url, application_name=name[:63])
        try:
            kind = "" if self._is_whole else "_shared"
            until = time.monotonic() + LOCK_SECONDS
            while not _one(db, f"select pg_try_advisory_lock{kind}({STORE_KEY})"):
                if time.monotonic() > until:
                    raise self._locked(db)
                time.sleep(0.02)
            if _one(db, _HAS_TABLES):
                self.seq = int(_one(db, LAST_SEQ))
                db.execute(_SWEEP)
                db.execute(_ENTER, (self._id,))
            return db
        except BaseException:
            db.close()
            raise

    def _locked(self, db: psycopg.Connection[Any]) -> StoreLocked:
        rows = db.execute(HOLDERS).fetchall()
        holders = ", ".join(sorted({name.removeprefix("retinue ") for (name,) in rows}))
        return StoreLocked(
            f"{shown(self.url)} is in use by {f'process {holders}' if holders else 'others'}. "
            "Nothing was changed. Stop that, use its host instead of opening the database, or use "
            "another store."
        )

    def do(self, act: Callable[[psycopg.Connection[Any]], T], note: str = NOT_SAVED) -> T:
        """A transaction of its own."""
        db = self._ready(note)
        try:
            with db.transaction():
                return act(db)
        except Exception as error:
            raise errors.store_error(error, self.url, note) from error

    def write(self, batches: list[FencedBatch]) -> list[int | StoreError]:
        """One transaction for all of them, without the trees that another worker has. If one tree
        spoils it for the others, each is written alone."""
        try:
            return self._attempt(batches)
        except StoreError:
            raise
        except Exception as error:
            fences = dict.fromkeys(one.fence for one in batches)
            if len(fences) == 1 or errors.is_full(error) or errors.is_cut(error):
                raise errors.store_error(error, self.url, NOT_SAVED) from error
        outcomes: dict[int, int | StoreError] = {}
        for fence in fences:
            some = [n for n, one in enumerate(batches) if one.fence == fence]
            try:
                result: list[int | StoreError] = self.write([batches[n] for n in some])
            except StoreError as error:
                result = [error] * len(some)
            outcomes.update(zip(some, result, strict=True))
        return [outcomes[n] for n in range(len(batches))]

    def _attempt(self, batches: list[FencedBatch]) -> list[int | StoreError]:
        for n in range(MOST_TRIES):
            self._n += 1
            attempt = _Attempt(batches, self._id, self._n)
            db = self._ready(KEPT)
            try:
                attempt.run(db)
            except Exception as error:
                if errors.is_cut(error) or db.closed:
                    self._db = None
                    if not self._was_committed(attempt, db):
                        raise errors.store_error(error, self.url, KEPT) from error
                elif errors.is_passing(error) and n + 1 < MOST_TRIES:
                    continue
                elif errors.is_away(error) or errors.is_full(error):
                    raise errors.store_error(error, self.url, KEPT) from error
                else:
                    raise
            return self._outcomes(attempt)
        raise AssertionError("the last try returns or raises")

    def _outcomes(self, attempt: _Attempt) -> list[int | StoreError]:
        out: list[int | StoreError] = []
        seqs = iter(attempt.seqs)
        for one in attempt.batches:
            if one.fence in attempt.refused:
                out.append(_taken(one, attempt.refused[one.fence], self.url))
                continue
            for _ in one.rows.events:
                self.seq = next(seqs)
            out.append(self.seq)
        return out

    def _ready(self, note: str) -> psycopg.Connection[Any]:
        if not self._is_open:
            raise StoreError(f"{shown(self.url)} is not open. {NOT_SAVED}")
        if self._db is None or self._db.closed:
            try:
                self._db = self._connect()
            except StoreUnreachable as error:
                raise StoreUnreachable(str(error).replace("Nothing was changed.", note)) from error
        return self._db

    def _was_committed(self, attempt: _Attempt, db: psycopg.Connection[Any]) -> bool:
        """What has become of a transaction whose connection was cut. The answer is waited for as
        long as the store is open: nothing may be written before it is known."""
        with contextlib.suppress(Exception):
            db.close()
        if not attempt.number:
            return False
        for n in range(1 << 30):
            if self._is_leaving:
                return False
            try:
                return self._is_last(attempt)
            except Exception as error:
                why = errors.store_error(error, self.url, "Nothing was changed.")
                if n % 20 == 0:
                    log.error("it is not known yet whether a batch was saved; retrying: %s", why)
            time.sleep(RECONNECT_SECONDS[min(n, len(RECONNECT_SECONDS) - 1)])
        return False

    def _is_last(self, attempt: _Attempt) -> bool:
        """Whether the row of this writer is as that transaction has left it. The lock on the row is
        waited for: while the transaction is under way, it has it."""
        with connect(self.url) as db:
            db.execute(_HAVE_PATIENCE)
            if attempt.backend:
                db.execute(_STOP, (attempt.backend, str(int(attempt.number) % (1 << 32))))
            return bool(_one(db, _LAST, self._id) == attempt.n)

    def tidy(self) -> None:
        """The server does that by itself."""

    def leave(self) -> None:
        """What waits is still written, but a server that is away is not waited for."""
        self._is_leaving = True

    def close(self) -> None:
        self._is_open = False
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(Exception):
                db.execute("delete from writers where id = %s::uuid", (self._id,))
            db.close()


class _Attempt:
    """One transaction: what it needs to know to say afterwards what has become of it."""

    def __init__(self, batches: list[FencedBatch], writer: str, n: int) -> None:
        self.batches, self._writer, self.n = batches, writer, n
        self.refused: dict[str, int | None] = {}
        self.seqs: list[int] = []
        self.number = ""
        self.backend = 0

    def run(self, db: psycopg.Connection[Any]) -> None:
        self.backend = db.info.backend_pid
        with db.pipeline(), db.transaction():
            cursor = db.cursor()
            cursor.execute(LOCK, (sorted(roots_of(self.batches)),))
            heads: dict[str, TreeHead] = {}
            epochs: dict[str, int] = {}
            for root, last, chain, epoch in cursor.fetchall():
                heads[root], epochs[root] = TreeHead(last, chain), epoch
            good = []
            for one in self.batches:
                if epochs.get(one.fence) == one.epoch:
                    good.append(one)
                else:
                    self.refused[one.fence] = epochs.get(one.fence)
            if good:
                if any(one.fence for one in good):
                    cursor.execute(MARK_WRITING)
                number = db.execute(_LEAVE_NUMBER, (self._writer, self.n))
                self.seqs = write(cursor, good, heads, int(time.time() * 1000))
                row = number.fetchone()
                self.number = row[0] if row else ""


def _taken(batch: FencedBatch, epoch: int | None, url: str) -> StoreError:
    if not batch.fence:
        return StoreError(
            f"{shown(url)} was taken over by another process (epoch {epoch}, this one has "
            f"{batch.epoch}). {NOT_SAVED} Stop this process."
        )
    return TreeTaken(
        f"Tree {batch.fence} is owned by another worker (epoch {epoch}, this one has "
        f"{batch.epoch}). {NOT_SAVED} Stop the tree here."
    )


def _one(db: psycopg.Connection[Any], sql: str, *args: Any) -> Any:
    row = db.execute(sql, args or None).fetchone()
    return row[0] if row is not None else None


_HAS_TABLES = "select to_regclass('writers') is not null"
_ENTER = "insert into writers (id) values (%s::uuid) on conflict do nothing"
_SWEEP = "delete from writers where at < now() - interval '90 days'"
_LEAVE_NUMBER = """
insert into writers (id, n) values (%s::uuid, %s)
on conflict (id) do update set n = excluded.n, at = now() returning pg_current_xact_id()::text"""
_LAST = "select n from writers where id = %s::uuid for update"
_HAVE_PATIENCE = "set lock_timeout = '5s'"
# Our own old connection may still be there, on the other side of a cut: it must not commit later.
_STOP = """
select pg_terminate_backend(pid) from pg_stat_activity
where pid = %s and backend_xid::text = %s"""
