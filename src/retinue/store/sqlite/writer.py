"""The one connection that writes. A batch is written whole or not at all.

The position of the last event and the heads of the trees are kept in memory and move only with a
commit that succeeded; after an error of the disk they are read again from a new connection, because
an fsync that has failed once says nothing when it is repeated. Before each commit the files are
looked at: what was cut, moved or replaced is not written to."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import apsw

from retinue.errors import StoreError
from retinue.store.artifact_files import Artifacts
from retinue.store.row_batch import RowBatch, in_turn
from retinue.store.sqlite.database_file import BUSY_MS, connect, prepare, take_over
from retinue.store.sqlite.deletion import forget, thin
from retinue.store.sqlite.reader_queries import LAST_SEQ
from retinue.store.sqlite.row_writer import RowWriter
from retinue.store.sqlite.sqlite_errors import commit_error, cut_off, moved
from retinue.store.sqlite.store_lock import Lock
from retinue.store.sqlite.tree_logs import LogHead

CHECKPOINT_PAGES = 4_000
RESTART_PAGES = 16_000
"""A log of so many pages is begun anew even if readers have to be waited for; for one ten times as
long, longer."""
RESTART_SECONDS = 1.0
RESTART_MS = (50, 1_000)
INCREMENTAL = 2


class SqliteWriter:
    """Owned by one thread at a time."""

    def __init__(self, path: str, synchronous: str, artifacts: Artifacts) -> None:
        self.path = path
        self.epoch = 0
        self.seq = 0
        self._synchronous = synchronous
        self._artifacts = artifacts
        self._lock = Lock(path)
        self._db: apsw.Connection | None = None
        self._rows: RowWriter
        self._files: tuple[int, ...] = ()
        self._size = self._wal_size = 0
        self._page = 4_096
        self._n_pages = 0
        self._restarted = 0.0

    def open(self) -> int:
        self._lock.acquire()
        try:
            db, self.epoch = take_over(self.path, self._synchronous)
        except BaseException:
            self._lock.release()
            raise
        self._files, self._size, _ = self._stat()
        self._adopt(db)
        return self.epoch

    def _adopt(self, db: apsw.Connection) -> None:
        """Continue behind the last event that this connection sees."""
        db.set_wal_hook(self._note_pages)
        self._page = db.pragma("page_size")
        self._wal_size = 0
        self.seq = db.execute(LAST_SEQ).get
        self._rows = RowWriter(db, self._artifacts)
        self._db = db

    def _note_pages(self, _db: apsw.Connection, _name: str, n_pages: int) -> int:
        self._n_pages = n_pages
        self._wal_size = 32 + n_pages * (self._page + 24)
        return apsw.SQLITE_OK

    def write(self, batches: list[RowBatch]) -> list[int]:
        """One transaction for all of them. Returns the position of the last event of each."""
        heads: dict[str, LogHead] = {}
        roots: list[str] = []
        unnamed: list[str] = []
        named: set[str] = set()
        seq = self.seq
        with self._transaction() as db:
            for batch in in_turn(batches):
                seq = self._rows.write(db, batch, seq, heads, named)
                if batch.forgotten:
                    self._rows.clear()
                    trees, names = forget(
                        db, batch.forgotten, batch.events[-1][2] if batch.events else _now()
                    )
                    roots += trees
                    unnamed += names
        ended = [id for batch in batches for id in batch.ended]
        self._rows.heads.keep(heads, (*roots, *(id for id in ended if id in heads)))
        self._rows.drop(ended)
        if named or unnamed:
            self._artifacts.named(named)
            self._artifacts.collect(unnamed)
        first, self.seq = self.seq, seq
        lasts = []
        for one in batches:
            first += len(one.events)
            lasts.append(first)
        return lasts

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """All of it or nothing, if the file is still ours."""
        try:
            db = self._ready()
            db.execute("BEGIN IMMEDIATE")
            epoch = db.execute("select value from meta where key = 'epoch'").get
            if epoch != self.epoch:
                raise StoreError(
                    f"{self.path} was taken over by another process (epoch {epoch}, this "
                    f"one has {self.epoch}). This batch was not saved. Stop this process."
                )
            yield db
            db.execute("COMMIT")
        except StoreError as error:
            self._undo(error)
            raise
        except Exception as error:
            self._undo(error)
            raise commit_error(error, self.path) from error

    def _ready(self) -> apsw.Connection:
        """The connection, if the files are still the ones that were opened. After an error of the
        disk: a new one."""
        if not self._files:
            raise StoreError(f"{self.path} is not open.")
        self._check_files()
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

    def _check_files(self) -> None:
        """Two looks at the folder, some microseconds: files only shrink when this process makes
        them."""
        files, size, wal_size = self._stat()
        if files != self._files:
            raise moved(self.path)
        if size < self._size:
            self._check_size(size)
        if 0 < wal_size < self._wal_size:
            raise cut_off(self.path)
        if wal_size < self._wal_size:
            self._check_wal()

    def _stat(self) -> tuple[tuple[int, ...], int, int]:
        try:
            file, wal = os.stat(self.path), os.stat(self.path + "-wal")
        except OSError:
            return (), 0, 0
        return (file.st_dev, file.st_ino, wal.st_dev, wal.st_ino), file.st_size, wal.st_size

    def _check_size(self, size: int) -> None:
        """The file is shorter, and not by us. Another program may have moved into it that pages
        were given back. (To open an empty file would delete its -wal.)"""
        if not size:
            raise cut_off(self.path)
        try:
            db = connect(self.path, read_only=True)
            try:
                expected = db.pragma("page_count") * db.pragma("page_size")
                last = db.execute(LAST_SEQ).get
            finally:
                db.close(True)
        except apsw.Error as error:
            raise cut_off(self.path) from error
        if size != expected or last != self.seq:
            raise cut_off(self.path)
        self._size = size

    def _check_wal(self) -> None:
        """The -wal is empty, and not by us. Another program may have moved all of it into the file,
        properly; or it was cut, and then what was written last cannot be read by a connection that
        remembers nothing."""
        try:
            db = connect(self.path, read_only=True)
            try:
                last = db.execute(LAST_SEQ).get
                for table in ("board", "trees", "runs"):
                    db.execute(f"select * from {table} order by n desc limit 1").fetchall()
            finally:
                db.close(True)
            if last != self.seq:
                raise cut_off(self.path)
            if self._db is not None:
                self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.Error as error:
            raise cut_off(self.path) from error
        self._wal_size = 0

    def _undo(self, error: Exception) -> None:
        self._rows.clear()
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
        """Move what the WAL holds into the file when there is enough of it. No one waits for
        this."""
        if self._n_pages >= CHECKPOINT_PAGES:
            self._checkpoint()

    def _checkpoint(self) -> None:
        if self._db is None:
            return
        try:
            self._check_files()
            n_pages, _ = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._n_pages = 0
            if n_pages >= RESTART_PAGES:
                self._restart(self._db, n_pages)
            self._size = self._stat()[1] or self._size
        except StoreError:  # the next commit gets the error
            pass
        except Exception as error:  # everything is in the WAL still; the next commit tries again
            self._undo(error)

    def _restart(self, db: apsw.Connection, n_pages: int) -> None:
        """Readers that take turns keep a log from ever being begun anew. Now and then they are
        waited for: those who come meanwhile read the newest state, which is in no one's way."""
        now = time.monotonic()
        if now - self._restarted < RESTART_SECONDS:
            return
        db.set_busy_timeout(RESTART_MS[n_pages >= 10 * RESTART_PAGES])
        try:
            with contextlib.suppress(apsw.BusyError):
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                self._wal_size = 0
        finally:
            db.set_busy_timeout(BUSY_MS)
            self._restarted = time.monotonic()

    def thin(self, root: str) -> bool:
        """One piece of a tree that is about to be forgotten; whether there is more to do before
        that."""
        with self._transaction() as db:
            self._rows.clear()
            is_more, unnamed = thin(db, root, _now())
        self._artifacts.collect(unnamed)
        self.tidy()
        return is_more

    @property
    def is_old(self) -> bool:
        """Whether the file cannot give pages back but by being rebuilt."""
        return bool(self._ready().pragma("auto_vacuum") != INCREMENTAL)

    def free(self, n_pages: int) -> int:
        """Give up to so many free pages back; returns how many are left. The file shrinks with the
        next `shrink`."""
        with self._transaction() as db:
            db.execute(f"pragma incremental_vacuum({n_pages})").fetchall()
            n_free: int = db.pragma("freelist_count")
        self.tidy()
        return n_free

    def rebuild(self) -> None:
        """Write the whole file anew, without holes, so that from now on it can give pages back."""
        with self._transaction() as db:
            pass  # the file is still ours
        try:
            db.pragma("auto_vacuum", INCREMENTAL)
            db.execute("VACUUM")
        except apsw.Error as error:
            raise commit_error(error, self.path) from error

    def shrink(self) -> None:
        """Move all of the WAL into the file, which ends where its last page does. A reader who is
        in the way keeps it from that; then it shrinks some other time."""
        db = self._ready()
        db.set_busy_timeout(RESTART_MS[1])
        try:
            with contextlib.suppress(apsw.BusyError):
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                self._n_pages = self._wal_size = 0
        except apsw.Error as error:
            raise commit_error(error, self.path) from error
        finally:
            db.set_busy_timeout(BUSY_MS)
            self._size = self._stat()[1] or self._size

    def close(self, *, tell: bool = True) -> None:
        """Let go. `tell` leaves the file complete and marked as closed; without it this is what a
        crash leaves."""
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


def _now() -> int:
    return int(time.time() * 1000)
