"""Who else has the file open: one process writes, and the others are told so."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retinue.errors import StoreError, StoreFull, StoreLocked
from retinue.store.sqlite import database_file
from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.contracts.store import World, all_of, run_async
from tests.store.sample_stores import ROOT, contents, filled, opened, python
from tests.waiting import SECONDS


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    code = """
    import asyncio, sys
    from retinue.store.sqlite.sqlite_store import SqliteStore
    asyncio.run(SqliteStore(sys.argv[1]).open())
    print("open", flush=True)
    sys.stdin.read()
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = python(code, tmp_path / "log.db")
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_with_the_pid_of_the_first(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    before = contents(tmp_path, "log.db", "log.db-wal")
    with pytest.raises(StoreLocked, match=f"in use by process {holder.pid}.*Stop that process"):
        asyncio.run(opened(tmp_path / "log.db"))
    assert contents(tmp_path, "log.db", "log.db-wal") == before
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    async def take_over() -> int:
        store = SqliteStore(tmp_path / "log.db")
        epoch = await store.open()
        await store.close()
        return epoch

    assert asyncio.run(take_over()) == 2


@run_async
async def test_the_same_process_cannot_open_a_file_twice(tmp_path: Path) -> None:
    store = await opened(tmp_path / "log.db")
    with pytest.raises(StoreLocked, match=str(os.getpid())):
        await opened(tmp_path / "log.db")
    with pytest.raises(StoreError, match="already open"):
        await store.open()
    await store.close()
    again = await opened(tmp_path / "log.db")
    await again.close()


@run_async
async def test_without_the_lock_the_epoch_fences_the_older_process(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path / "log.db")
    os.unlink(tmp_path / "log.db.lock")
    thief = await opened(tmp_path / "log.db")
    before = await all_of(thief)
    world = World()
    world.start(id="new")
    changes = world.take()
    for _ in range(2):
        with pytest.raises(StoreError, match="taken over by another process"):
            await store.commit(changes)
    assert await all_of(thief) == before
    await thief.commit(changes)
    await store.close()
    # The older one's goodbye does not count as the newer one's.
    assert thief._reader._all("select count(*) from meta where key = 'home'") == [(1,)]
    assert await thief.verify() == []
    await thief.close()


@pytest.fixture
def another_writer(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts a process that holds SQLite's own write lock until it is killed."""
    code = """
    import sys, apsw
    db = apsw.Connection(sys.argv[1])
    db.execute("begin immediate")
    print("locked", flush=True)
    sys.stdin.read()
    """
    started = []

    def start() -> subprocess.Popen[str]:
        command = python(code, tmp_path / "log.db")
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@run_async
async def test_a_foreign_lock_is_waited_for_and_then_named(
    tmp_path: Path,
    another_writer: Callable[[], subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database_file, "BUSY_MS", 200)
    store, lasts = await filled(tmp_path / "log.db")
    other = another_writer()
    changes = World().take()
    with pytest.raises(StoreLocked, match=f"locked by process {other.pid} .*Nothing was changed"):
        await store.commit(changes)
    store._writer._db.set_busy_timeout(round(SECONDS * 1_000))
    commit = asyncio.ensure_future(store.commit(changes))
    await asyncio.sleep(0.05)
    assert not commit.done()
    other.kill()
    assert await commit == lasts[-1] + len(changes.entries)
    assert await store.verify() == []
    await store.close()


@run_async
async def test_a_connection_that_may_not_write_is_as_good_as_a_full_disk(tmp_path: Path) -> None:
    store, lasts = await filled(tmp_path / "log.db")
    changes = World().take()
    store._writer._db.pragma("query_only", True)
    for _ in range(2):
        with pytest.raises(StoreFull, match="make the file writable"):
            await store.commit(changes)
    store._writer._db.pragma("query_only", False)
    assert await store.commit(changes) == lasts[-1] + len(changes.entries)
    await store.close()
