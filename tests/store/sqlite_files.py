"""Stores in SQLite files for tests, and ways to look into such a file and to damage it."""

import stat
from pathlib import Path
from typing import Any

import apsw

from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.contracts.store import World


async def opened(folder: Path, **options: Any) -> SqliteStore:
    store = SqliteStore(folder / "log.db", **options)
    await store.open()
    return store


async def filled(folder: Path, n_batches: int = 3) -> SqliteStore:
    """A store with a few trees, each of its own commit."""
    store, world = await opened(folder), World()
    for _ in range(n_batches):
        _, (child, *_) = world.family()
        world.say(child)
        await store.commit(world.take())
    return store


def modes_in(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): stat.filemode(path.stat().st_mode)
        for path in folder.rglob("*")
    }


def flip(path: Path, value: bytes, at: int) -> None:
    """Rot: one bit of `value`, in every place of a file where it stands."""
    path.write_bytes(
        path.read_bytes().replace(value, value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :])
    )


def alter(path: Path, sql: str, *args: Any) -> None:
    db = apsw.Connection(str(path))
    db.execute(sql, args)
    db.close()
