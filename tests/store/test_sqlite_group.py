"""Group commit: batches that wait together share one fsync, and what fails fails alone and in
order."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from retinue.core.changes import Changes
from retinue.errors import StoreError, StoreFull
from retinue.store import quick_turns
from retinue.store.commit_group import PendingCommit
from retinue.store.row_batch import RowBatch
from retinue.store.sqlite import sqlite_store, writer
from tests.contracts.store import World, all_of, run_async, texts
from tests.store.sqlite_files import filled, opened


class Counting(apsw.VFS):
    """Counts the times that a file is made durable, and can make one of them fail."""

    def __init__(self) -> None:
        self.n_syncs = 0
        self.fail_at = -1
        super().__init__("counting", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> "CountingFile":
        return CountingFile(self, name, flags)


class CountingFile(apsw.VFSFile):
    def __init__(self, vfs: Counting, name: Any, flags: list[int]) -> None:
        self.vfs = vfs
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        self.vfs.n_syncs += 1
        if self.vfs.n_syncs == self.vfs.fail_at:
            error = apsw.IOError("the disk did not take it")
            error.extendedresult = apsw.SQLITE_IOERR_FSYNC  # type: ignore[attr-defined]
            raise error
        super().xSync(flags)


@pytest.fixture
def disk() -> Iterator[Counting]:
    vfs = Counting()
    yield vfs
    vfs.unregister()


def _itself(row: RowBatch) -> RowBatch:
    return row


@run_async
async def test_commits_that_wait_together_share_one_fsync(tmp_path: Path, disk: Counting) -> None:
    store, world = await opened(tmp_path), World()
    await store.commit(world.take())
    batches = []
    for n in range(50):
        world.start(f"task {n}")
        batches.append(world.take())
    before = disk.n_syncs
    await asyncio.gather(*(store.commit(batch) for batch in batches))
    assert 1 <= disk.n_syncs - before <= 4
    before = disk.n_syncs
    for _ in range(5):
        world.start()
        await store.commit(world.take())
    assert disk.n_syncs - before >= 5
    assert await store.verify() == []
    await store.close()


@pytest.mark.parametrize("inline", [False, True])
@run_async
async def test_an_fsync_that_fails_undoes_the_batch_and_is_not_repeated(
    tmp_path: Path, disk: Counting, inline: bool
) -> None:
    store, world = await opened(tmp_path, inline=inline), World()
    await store.commit(world.take())
    before = await all_of(store)
    connection = store._writer._db
    world.start()
    changes = world.take()
    disk.fail_at = disk.n_syncs + 1
    with pytest.raises(StoreFull, match="then retry"):
        await store.commit(changes)
    assert store._writer._db is not connection
    assert await all_of(store) == before
    last = await store.commit(changes)
    assert [seq for seq, _ in await store.entries()] == list(range(1, last + 1))
    assert await store.verify() == []
    await store.close()


@run_async
async def test_a_batch_sent_behind_one_that_failed_is_not_written_before_it(tmp_path: Path) -> None:
    store, world = await opened(tmp_path), World()
    await store.commit(world.take())
    batches = []
    for n in range(6):
        world.start(f"task {n}")
        batches.append(world.take())
    write, n_calls = store._writer.write, 0

    def fail_once(rows: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 1:
            # More arrives while this one is being written, and nobody has heard of its failure yet.
            for job in late:
                store._group._queue.put(job)
            raise StoreError("planted")
        return write(rows)

    loop = asyncio.get_running_loop()
    rows = [RowBatch(events=[("", "", 1, b"{}", bytes(32))]) for _ in range(3)]
    late = [
        PendingCommit(lambda row=row: row, loop, loop.create_future(), store._group._line, 0)  # type: ignore[misc]
        for row in rows
    ]
    store._writer.write = fail_once  # type: ignore[method-assign]
    results = await asyncio.gather(
        *(store.commit(batch) for batch in batches), return_exceptions=True
    )
    late_results = await asyncio.gather(*(job.future for job in late), return_exceptions=True)
    assert all(isinstance(result, StoreError) for result in [*results, *late_results])
    assert len(await store.entries()) == 2
    for batch in batches:
        await store.commit(batch)
    tasks = [texts(await store.messages(s.id))[0] for s in await store.listing()]
    assert tasks == [f"task {n}" for n in range(5, -1, -1)]
    await store.close()


@run_async
async def test_a_batch_that_is_no_json_is_refused_alone(tmp_path: Path) -> None:
    store, world = await opened(tmp_path), World()
    batches = [world.take()]
    for n in range(4):
        world.start(f"task {n}")
        batches.append(world.take())
    bad = Changes(entries=[replace(batches[1].entries[0], at=object())])
    worse = Changes(specs=batches[1].specs)
    batches_sent = [batches[0], batches[1], bad, batches[2], worse, batches[3], batches[4]]
    results = await asyncio.gather(
        *(store.commit(one) for one in batches_sent), return_exceptions=True
    )
    wrong = [results.pop(4), results.pop(2)]
    assert all(
        isinstance(error, StoreError) and "This batch was not saved" in str(error)
        for error in wrong
    )
    assert results == sorted(results) and results[-1] == len(await store.entries())
    assert len(await store.listing()) == 4
    assert await store.verify() == []
    await store.close()


@run_async
async def test_rows_are_made_in_the_writers_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, encoder = set[str](), sqlite_store.encode  # type: ignore[attr-defined]

    def told(*args: Any, **options: Any) -> Any:
        threads.add(threading.current_thread().name)
        return encoder(*args, **options)

    monkeypatch.setattr(sqlite_store, "encode", told)
    store = await filled(tmp_path)
    await store.close()
    assert threads == {"retinue-store-writer"}


@run_async
async def test_a_commit_whose_caller_was_cancelled_is_written_all_the_same(tmp_path: Path) -> None:
    store, world = await opened(tmp_path), World()
    commit = asyncio.ensure_future(store.commit(world.take()))
    await asyncio.sleep(0)
    commit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await commit
    await store.close()
    again = await opened(tmp_path)
    assert len(await again.entries()) == 2
    await again.close()


@run_async
async def test_closing_finishes_what_waits(tmp_path: Path) -> None:
    store, world = await opened(tmp_path), World()
    batches = [world.take()]
    for _ in range(20):
        world.start()
        batches.append(world.take())
    commits = [asyncio.ensure_future(store.commit(batch)) for batch in batches]
    await asyncio.sleep(0)
    await store.close()
    assert len(await asyncio.gather(*commits)) == 21


@run_async
async def test_the_wal_is_emptied_into_the_file_as_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHECKPOINT_PAGES", 50)
    store, world = await opened(tmp_path), World()
    await store.commit(world.take())
    for _ in range(40):
        world.family()
        await store.commit(world.take())
    assert (tmp_path / "log.db-wal").stat().st_size < 150 * 4_200
    assert (tmp_path / "log.db").stat().st_size > 100_000
    assert await store.verify() == []
    await store.close()


@run_async
async def test_threads_take_quick_turns_until_the_last_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = 0.005
    # A store that another test has left open, as a killed process does, would count here.
    monkeypatch.setattr(quick_turns, "_open", [])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(before)
    first, second = (
        sqlite_store.SqliteStore(tmp_path / "a.db"),
        sqlite_store.SqliteStore(tmp_path / "b.db"),
    )
    await first.open()
    await second.open()
    assert sys.getswitchinterval() < before / 10
    await first.close()
    assert sys.getswitchinterval() < before / 10
    await second.close()
    assert sys.getswitchinterval() == before
    inline = sqlite_store.SqliteStore(tmp_path / "c.db", inline=True)
    await inline.open()
    assert sys.getswitchinterval() == before
    await inline.close()
    sys.setswitchinterval(interval)
