"""Moving a store: from a SQLite file to PostgreSQL, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from retinue.errors import ConfigError
from retinue.formats.database_address import is_postgres, shown, wrong_address
from retinue.store.moving import MovingSource, MovingTarget, move

__all__ = ["is_postgres", "move_store", "shown", "wrong_address"]


def move_store(source: str, target: str, moved: Callable[[str, int, int], None]) -> dict[str, int]:
    """Copy one store into another that is empty, and compare. Both are locked meanwhile; nothing
    of the first is changed. Returns how many rows of each table there are."""
    for store in (source, target):
        if why := wrong_address(store):
            raise ConfigError(why)
    with contextlib.ExitStack() as stack:
        old = _source(source)
        stack.callback(old.close)
        new = _target(target)
        stack.callback(new.close)
        return move(old, new, moved)


def _source(store: str) -> MovingSource:
    if is_postgres(store):
        from retinue.store.postgres.moved_database import PostgresSource

        return PostgresSource(store)
    from retinue.store.sqlite.moved_file import SqliteSource

    return SqliteSource(store)


def _target(store: str) -> MovingTarget:
    if is_postgres(store):
        from retinue.store.postgres.moved_database import PostgresTarget

        return PostgresTarget(store)
    from retinue.store.sqlite.moved_file import SqliteTarget

    return SqliteTarget(store)
