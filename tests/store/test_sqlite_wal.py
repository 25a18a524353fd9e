"""The -wal file stays small beside readers: those who take turns, and those who take long."""

import asyncio
import threading
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from retinue.store import chain_check, chains
from retinue.store.sqlite import integrity, writer
from retinue.store.sqlite.database_file import connect
from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.contracts.store import World, run_async

FRAME = 4_096 + 24


async def opened(folder: Path) -> SqliteStore:
    store = SqliteStore(folder / "log.db", synchronous="OFF")
    await store.open()
    return store


class Turns:
    """Two readers, each of whom begins before the other has ended: somebody always reads."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._stop = threading.Event()
        self._begun = threading.Barrier(2)
        self._threads = [
            threading.Thread(target=self._read, args=(str(path), seconds, n)) for n in range(2)
        ]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _read(self, path: str, seconds: float, n: int) -> None:
        db = connect(path, read_only=True)
        self._begun.wait()
        time.sleep(n * seconds / 2)
        while not self._stop.is_set():
            db.execute("begin")
            db.execute("select max(seq) from events").fetchall()
            time.sleep(seconds)
            db.execute("commit")
        db.close()


def wal_size(store: SqliteStore) -> int:
    return Path(store.path + "-wal").stat().st_size


async def grow(store: SqliteStore, world: World, n: int) -> int:
    """The most bytes that the -wal file had while trees were written."""
    most = 0
    for _ in range(n):
        world.family("x" * 4_000)
        await store.commit(world.take())
        most = max(most, wal_size(store))
        await asyncio.sleep(0.001)
    return most


@run_async
async def test_readers_who_take_turns_do_not_keep_the_wal_growing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(writer, "RESTART_PAGES", 200)
    monkeypatch.setattr(writer, "RESTART_SECONDS", 0.02)
    store, world = await opened(tmp_path), World()
    await store.commit(world.take())
    with Turns(tmp_path / "log.db", 0.02):
        most = await grow(store, world, 500)
    n_bytes = (tmp_path / "log.db").stat().st_size
    assert n_bytes > 3_000_000
    assert most < 2_500 * FRAME, f"{most} bytes"
    assert await store.verify() == []
    await store.close()


@run_async
async def test_without_waiting_for_them_it_would_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(writer, "RESTART_PAGES", 1_000_000)
    store, world = await opened(tmp_path), World()
    await store.commit(world.take())
    with Turns(tmp_path / "log.db", 0.02):
        assert await grow(store, world, 500) > 3_000 * FRAME
    await store.close()


@run_async
async def test_a_reader_who_stays_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(writer, "RESTART_PAGES", 200)
    store, world = await opened(tmp_path), World()
    await store.commit(world.take())
    db = connect(store.path, read_only=True)
    db.execute("begin")
    db.execute("select max(seq) from events").fetchall()
    began = time.monotonic()
    await grow(store, world, 100)
    assert time.monotonic() - began < 100 * writer.RESTART_MS[1] / 1000, "every commit has waited"
    db.execute("commit")
    await asyncio.sleep(writer.RESTART_SECONDS)
    await grow(store, world, 100)
    db.close()
    assert wal_size(store) < 1_000 * FRAME
    assert await store.verify() == []
    await store.close()


@run_async
async def test_a_check_that_takes_long_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (integrity, chain_check):
        monkeypatch.setattr(module, "PAGE", 7)
    store, world = await opened(tmp_path), World()
    for _ in range(5):
        world.family()
    await store.commit(world.take())
    other = apsw.Connection(store.path)
    other.execute("select 1 from meta").fetchall()
    follows, n_looks = chains.follows, 0

    def slow(*args: Any) -> bool:
        nonlocal n_looks
        n_looks += 1
        other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)  # busy, if somebody reads
        return follows(*args)

    monkeypatch.setattr(chain_check, "follows", slow)
    assert integrity.verify(store.path) == []
    assert n_looks == len(await store.entries())
    other.close()
    await store.close()


@run_async
async def test_a_tree_that_grows_or_goes_while_it_is_checked_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (integrity, chain_check):
        monkeypatch.setattr(module, "PAGE", 3)
    store = SqliteStore(tmp_path / "log.db", inline=True, synchronous="OFF")
    await store.open()
    world = World()
    run, grows = world.start(), world.start()
    for root in (run, grows):
        for _ in range(5):
            world.call(root, "read")
            world.result(root)
    world.say(run)
    await store.commit(world.take())
    follows, n_looks = chains.follows, 0

    def meanwhile(*args: Any) -> bool:
        nonlocal n_looks
        n_looks += 1
        if n_looks == 5:
            store._writer.write([writer.RowBatch(forgotten=[run])])  # type: ignore[attr-defined]
        if n_looks > 8 and not n_looks % 2 and n_looks < 30:
            row = (grows, grows, n_looks, b"{}", sha256(b"{}").digest())
            store._writer.write([writer.RowBatch(events=[row])])  # type: ignore[attr-defined]
        return follows(*args)

    monkeypatch.setattr(chain_check, "follows", meanwhile)
    assert integrity.check_chains(connect(store.path, read_only=True)) == []
    assert n_looks > 20
    await store.close()
