"""Creates and migrates the tables with numbered SQL files under an advisory lock, so that workers
can start at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.errors import StoreError, StoreTooNew
from retinue.formats.database_address import shown

if TYPE_CHECKING:
    import psycopg

MIGRATIONS = Path(__file__).parent / "migrations"
LOCK = "retinue schema "
"""With the schema's name: what is locked while tables are made or changed."""


def migrations() -> list[Path]:
    return sorted(MIGRATIONS.glob("[0-9]*.sql"))


def version_of(db: psycopg.Connection[Any]) -> int:
    """The number of the last migration, 0 for a database without our tables."""
    # `to_regclass` would still deny a table that another process has made since it was first asked.
    if not _tables(db, ["retinue_schema"]):
        return 0
    row = db.execute("select coalesce(max(number), 0) from retinue_schema").fetchone()
    return int(row[0]) if row else 0


def check_version(db: psycopg.Connection[Any], url: str) -> int:
    """The version, if this program can read it."""
    version, n_known = version_of(db), len(migrations())
    if version > n_known:
        raise StoreTooNew(
            f"{shown(url)} has schema {version}; this version supports up to {n_known}. Nothing "
            "was changed. Upgrade Retinue, or use another store."
        )
    return version


def migrate(db: psycopg.Connection[Any], url: str) -> None:
    """Apply what is missing. Each file is applied whole or not at all, once."""
    files = migrations()
    if check_version(db, url) == len(files):
        return
    with db.transaction():
        db.execute(
            "select pg_advisory_xact_lock(hashtextextended(%s || current_schema(), 0))", (LOCK,)
        )
        if db.execute("select current_schema()").fetchone() == (None,):
            raise StoreError(
                f"{shown(url)} has no schema to put tables into. Nothing was changed. Create the "
                "one that its search_path names."
            )
        version = check_version(db, url)
        if not version:
            _refuse_foreign(db, url)
            db.execute(
                "create table retinue_schema (number int primary key,"
                " at timestamptz not null default now())"
            )
        for number in range(version + 1, len(files) + 1):
            db.execute(files[number - 1].read_bytes())
            db.execute("insert into retinue_schema (number) values (%s)", (number,))


def _tables(db: psycopg.Connection[Any], names: list[str]) -> list[str]:
    """Those of these tables that there are."""
    sql = (
        "select tablename from pg_catalog.pg_tables where schemaname = current_schema()"
        " and tablename = any(%s) order by 1"
    )
    return [name for (name,) in db.execute(sql, (names,))]


def _refuse_foreign(db: psycopg.Connection[Any], url: str) -> None:
    for name in _tables(db, ["events", "messages", "runs", "store", "trees"])[:1]:
        raise StoreError(
            f"{shown(url)} has a table {name} of another program. Nothing was changed. Use "
            "another database or schema."
        )
