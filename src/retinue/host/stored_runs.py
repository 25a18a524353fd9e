"""Tells which kind of store a project has: a file or a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.store.base import Store, StoreReader


def store_of(file: str, database: str) -> Store:
    """The store, to be opened by this process."""
    if database:
        from retinue.store.postgres.postgres_store import PostgresStore

        return PostgresStore(database, beside=file)
    from retinue.store.sqlite.sqlite_store import SqliteStore

    return SqliteStore(file)


def reader_of(file: str, database: str) -> StoreReader:
    """The store, to be looked at while others write."""
    if database:
        from retinue.store.postgres.postgres_reader import PostgresReader

        return PostgresReader(database, is_shared=True)
    from retinue.store.sqlite.reader import SqliteReader

    return SqliteReader(file)
