"""Reads and writes a PostgreSQL store as rows, to move it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from retinue.errors import StoreError
from retinue.formats.database_address import shown
from retinue.store.chains import genesis
from retinue.store.moving import TABLES, Row
from retinue.store.postgres.connections import connect
from retinue.store.postgres.database_schema import migrate
from retinue.store.postgres.postgres_errors import store_error
from retinue.store.postgres.postgres_integrity import verify
from retinue.store.postgres.postgres_writer import PostgresWriter
from retinue.store.postgres.queries import LAST_SEQ

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_ORDER = {
    "trees": 'root collate "C"',
    "mail": 'run collate "C", seq',
    "events": "seq",
    "artifacts": "sha256",
    "artifact_refs": 'sha256, root collate "C"',
}
"""Others have a number."""
_ROWS = {
    "specs": "select run, specs.body from specs join runs on id = run order by runs.n",
    "messages": (
        "select c.id, m.n, m.body from conversations c join messages m on m.conversation = c.id "
        "order by c.n, m.n"
    ),
    "runs": (
        "select id, conversation, root, parent, slot_turn, slot_index, open::int, turn, state, "
        "created_at, ended_at, body, account from runs order by n"
    ),
}
_TYPES = {
    "text": (
        *("root", "id", "parent_id", "base_id", "title", "conversation", "parent", "state"),
        *("run", "key", "name"),
    ),
    "bytea": ("chain", "cut_chain", "body", "account", "digest", "sha256"),
    "bool": ("open",),
}
_KINDS = {column: kind for kind, columns in _TYPES.items() for column in columns}
_OURS = "store, trees, workers, inbox, artifacts, " + ", ".join(
    table for table in TABLES if table not in ("trees", "artifacts")
)


class PostgresSource:
    """A database that no one else has open. Rows of a page are read at a time."""

    def __init__(self, url: str) -> None:
        self.url, self.name = url, shown(url)
        self._lock = PostgresWriter(url, is_whole=True)
        self._lock.open()
        self._db = connect(url)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        migrate(self._db, self.url)
        (incomplete, n_waiting) = self._one(
            "select (select incomplete from store), (select count(*) from inbox)"
        )
        if incomplete:
            raise StoreError(
                f"{self.name} is an unfinished copy of another store. Nothing was changed."
            )
        if n_waiting:
            raise StoreError(
                f"{self.name} has {n_waiting} messages that no worker has taken yet. Nothing was "
                "changed. Let a worker take them first."
            )

    def _one(self, sql: str) -> Any:
        row = self._db.execute(sql).fetchone()
        assert row is not None
        return row

    def counters(self) -> Mapping[str, int]:
        return {
            "epoch": self._one("select coalesce(max(epoch), 0) from trees")[0],
            "seq": self._one(LAST_SEQ)[0],
        }

    def count(self, table: str) -> int:
        return int(self._one(f"select count(*) from {table}")[0])

    def rows(self, table: str) -> Iterator[Row]:
        columns = ", ".join(TABLES[table])
        sql = _ROWS.get(table, f"select {columns} from {table} order by {_ORDER.get(table, 'n')}")
        page = 20 if table == "artifacts" else 2_000
        try:
            with self._db.transaction(), self._db.cursor(f"move_{table}") as cursor:
                cursor.itersize = page
                yield from cursor.execute(sql)
        except Exception as error:
            raise store_error(error, self.url, "Nothing was changed.") from error

    def close(self) -> None:
        self._db.close()
        self._lock.close()


class PostgresTarget(PostgresSource):
    """A database without a store, or with a copy that was not finished, which is begun again."""

    def _begin(self) -> None:
        migrate(self._db, self.url)
        sql = """
        select incomplete, exists (select 1 from events) or exists (select 1 from runs)
        or exists (select 1 from trees where root <> '' or last > 0)
        or exists (select 1 from artifacts) or exists (select 1 from definitions) from store"""
        incomplete, is_used = self._one(sql)
        if is_used and not incomplete:
            raise StoreError(
                f"{self.name} is not empty. Nothing was changed. Use another database."
            )
        with self._db.transaction():
            self._db.execute(f"truncate {_OURS}")
            self._db.execute("insert into store (incomplete) values (true)")

    def fill(self, table: str, rows: Iterable[Row]) -> None:
        columns = TABLES[table]
        names = ", ".join(columns) + (", size, waiting_since" if table == "artifacts" else "")
        sql = f"copy {table} ({names}) from stdin (format binary)"
        kinds = [_KINDS.get(column, "int8") for column in columns]
        if table == "artifacts":
            kinds += ["int8", "timestamptz"]
        try:
            with self._db.cursor() as cursor, cursor.copy(sql) as copy:
                copy.set_types(kinds)
                for row in rows:
                    if table == "runs":
                        row = (*row[:6], bool(row[6]), *row[7:])
                    elif table == "artifacts":
                        row = (*row, len(row[1]), None)
                    copy.write_row(row)
        except Exception as error:
            raise store_error(error, self.url, "The copy was not finished.") from error

    def verify(self) -> list[str]:
        return verify(self._db, self.url)

    def finish(self, counters: Mapping[str, int]) -> None:
        db = self._db
        with db.transaction():
            db.execute(
                "insert into trees (root, chain, epoch) values ('', %s, %s) on conflict (root) do "
                "update set epoch = excluded.epoch",
                (genesis(""), counters["epoch"]),
            )
            if counters["seq"]:
                db.execute("select setval('positions', %s)", (counters["seq"],))
            db.execute(
                "select setval(pg_get_serial_sequence('board', 'n'), "
                "(select coalesce(max(n), 1) from board), exists (select 1 from board))"
            )
            # What no one names is kept as if it had just been put.
            db.execute(
                "update artifacts a set waiting_since = now() where not exists "
                "(select 1 from artifact_refs r where r.sha256 = a.sha256)"
            )
            db.execute("update store set incomplete = false")
        db.execute("analyze")
