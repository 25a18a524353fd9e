"""Reads and writes a SQLite store as rows, to move it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping

import apsw

from retinue.errors import StoreError
from retinue.store.artifact_files import Artifacts
from retinue.store.moving import Row
from retinue.store.sqlite.database_file import connect, copy_database, take_over
from retinue.store.sqlite.integrity import check_chains
from retinue.store.sqlite.reader_queries import LAST_SEQ
from retinue.store.sqlite.sqlite_errors import commit_error, reading
from retinue.store.sqlite.store_lock import Lock

_ROWS = {
    "trees": "select root, last, chain, cut, cut_chain, forgotten_at from trees order by root",
    "conversations": (
        "select id, parent_id, base_id, base_length, base_start, created_at, title "
        "from conversations order by n"
    ),
    "runs": (
        "select id, conversation, root, parent, slot_turn, slot_index, open, turn, state, "
        "created_at, ended_at, body, account from runs order by n"
    ),
    "specs": "select id, specs.body from specs join runs on n = run order by n",
    "messages": (
        "select c.id, m.n, m.body from conversations c cross join messages m "
        "on m.conversation = c.n order by c.n, m.n"
    ),
    "mail": "select run, seq, body from mail order by run, seq",
    "outbox": "select key, run, state, next_at, body from outbox order by rowid",
    "definitions": "select name, body from definitions order by rowid",
    "models": "select name, body from models order by rowid",
    "board": "select n, root, key, at, body from board order by n",
    "events": (
        "select e.seq, t.root, e.number, e.run, e.at, e.digest, e.chain, b.body from events e "
        "cross join trees t on t.n = e.tree left join bodies b on b.seq = e.seq order by e.seq"
    ),
    "artifact_refs": (
        "select sha256, root from artifact_refs join trees on n = tree order by sha256, root"
    ),
}
_RUN = "(select n from runs where id = ?{})"
_TREE = "(select n from trees where root = ?{})"
_FILL = {
    "trees": (
        "insert into trees (root, last, chain, cut, cut_chain, forgotten_at) "
        "values (?1, ?2, ?3, ?4, ?5, ?6)"
    ),
    "conversations": (
        "insert into conversations (id, parent_id, base_id, base_length, base_start, created_at, "
        "title, user_initiated) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?2 is null)"
    ),
    "runs": (
        "insert into runs (id, conversation, root, parent, slot_turn, slot_index, open, turn, "
        "state, created_at, ended_at, body, account) "
        "values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
    ),
    "specs": f"insert into specs (run, body) values ({_RUN.format(1)}, ?2)",
    "messages": (
        "insert into messages (conversation, n, body) "
        "values ((select n from conversations where id = ?1), ?2, ?3)"
    ),
    "mail": "insert into mail (run, seq, body) values (?1, ?2, ?3)",
    "outbox": "insert into outbox (key, run, state, next_at, body) values (?1, ?2, ?3, ?4, ?5)",
    "definitions": "insert into definitions (name, body) values (?1, ?2)",
    "models": "insert into models (name, body) values (?1, ?2)",
    "board": "insert into board (n, root, key, at, body) values (?1, ?2, ?3, ?4, ?5)",
    "events": (
        "insert into events (seq, tree, number, run, owner, at, digest, chain) "
        f"values (?1, {_TREE.format(2)}, ?3, ?4, {_RUN.format(4)}, ?5, ?6, ?7)"
    ),
    "artifact_refs": (f"insert into artifact_refs (sha256, tree) values (?1, {_TREE.format(2)})"),
}


class SqliteSource:
    """A file that is locked, and only read. One of an older version is brought up to date first,
    with a copy kept."""

    def __init__(self, path: str) -> None:
        self.name = os.path.abspath(path)
        if not os.path.exists(self.name):
            raise StoreError(f"{self.name} does not exist. Nothing was changed.")
        self._artifacts = Artifacts(self.name + ".artifacts")
        self._lock = Lock(self.name)
        self._lock.acquire()
        try:
            db, self._epoch = take_over(self.name, "FULL")
            db.execute("delete from meta where key = 'home'")
            db.close(True)
            self._db = connect(self.name, read_only=True)
        except BaseException:
            self._lock.release()
            raise

    def counters(self) -> Mapping[str, int]:
        return {"epoch": self._epoch, "seq": int(self._db.execute(LAST_SEQ).get)}

    def count(self, table: str) -> int:
        if table == "artifacts":
            return sum(1 for _ in self._artifacts.names())
        return int(self._db.execute(f"select count(*) from {table}").get)

    def rows(self, table: str) -> Iterator[Row]:
        if table == "artifacts":
            for name in sorted(self._artifacts.names()):
                yield bytes.fromhex(name), self._artifacts.get(name, 0, None)
            return
        with reading(self.name):
            yield from self._db.execute(_ROWS[table])

    def close(self) -> None:
        self._db.close(True)
        self._lock.release()


class SqliteTarget:
    """A new file. It is made beside its place, and put there when it is whole."""

    def __init__(self, path: str) -> None:
        self.name = os.path.abspath(path)
        self._folder = self.name + ".artifacts"
        for there in (self.name, self.name + "-wal", self._folder):
            if os.path.exists(there):
                raise StoreError(f"{there} already exists. Nothing was changed. Use another name.")
        self._part = f"{self.name}.incomplete"
        self._artifacts = Artifacts(f"{self._part}.artifacts")
        self._lock = Lock(self._part)
        self._lock.acquire()
        self._clear()  # of one that was killed
        self._db, _ = take_over(self._part, "OFF")
        self._db.execute("pragma foreign_keys = off")
        self._db.execute("delete from trees")  # that of the whole store comes with the others

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        if table == "artifacts":
            for _, body in rows:
                self._artifacts.put(body)
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for row in rows:
                self._db.execute(_FILL[table], row[: len(row) - (table == "events")])
                if table == "events" and row[-1] is not None:
                    self._db.execute("insert into bodies (seq, body) values (?, ?)", row[::7])
            self._db.execute("COMMIT")
        except apsw.Error as error:
            raise commit_error(error, self._part) from error

    def counters(self) -> Mapping[str, int]:
        return {"seq": int(self._db.execute(LAST_SEQ).get)}

    def count(self, table: str) -> int:
        return sum(1 for _ in self.rows(table))

    def rows(self, table: str) -> Iterator[Row]:
        if table == "artifacts":
            for name in sorted(self._artifacts.names()):
                yield bytes.fromhex(name), self._artifacts.get(name, 0, None)
            return
        with reading(self._part):
            yield from self._db.execute(_ROWS[table])

    def verify(self) -> list[str]:
        wrong = check_chains(self._db)
        for table, row, parent, _ in self._db.execute("pragma foreign_key_check"):
            wrong.append(f"Row {row} of {table} refers to a row of {parent} that does not exist.")
        return wrong

    def finish(self, counters: Mapping[str, int]) -> None:
        upsert = "insert into meta values (?, ?) on conflict (key) do update set value = "
        for key, value in counters.items():
            self._db.execute(f"{upsert} max(value, excluded.value)", (key, value))
        if os.path.isdir(self._artifacts.folder):
            os.rename(self._artifacts.folder, self._folder)
        copy_database(self._db, self.name)

    def close(self) -> None:
        self._db.close(True)
        self._clear()
        self._lock.release()
        with contextlib.suppress(OSError):
            os.unlink(self._part + ".lock")

    def _clear(self) -> None:
        for tail in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._part + tail)
        shutil.rmtree(self._artifacts.folder, ignore_errors=True)
