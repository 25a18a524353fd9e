"""A file gives back what it does not need: in steps, beside writers; one of an older version by
being rebuilt."""

import asyncio
import time
from pathlib import Path

import pytest

from retinue.core.changes import Changes
from retinue.errors import NotFound, StoreError
from retinue.store import artifact_files as artifacts
from retinue.store.sqlite import deletion
from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.contracts.store import World, all_of, run_async
from tests.store.old_databases import Old


async def soaked(path: Path, n: int = 60) -> tuple[SqliteStore, list[str], World]:
    """A store with many ended trees, and one that is open."""
    store, world, roots = SqliteStore(path, synchronous="OFF"), World(), []
    await store.open()
    for k in range(n):
        roots.append(world.start(f"{k} " + "x" * 20_000))
        world.say(roots[-1], "y" * 20_000)
    world.start("open")
    await store.commit(world.take())
    return store, roots, world


def is_there(path: Path) -> bool:
    return path.exists()


@run_async
async def test_a_file_shrinks_when_most_of_it_was_forgotten(tmp_path: Path) -> None:
    store, roots, world = await soaked(tmp_path / "log.db")
    await store.compact()
    full = (tmp_path / "log.db").stat().st_size
    for root in roots[:-1]:
        await store.commit(Changes(forgotten=[root]))
    before = await all_of(store)
    records: list[tuple[int, int]] = []
    report = await store.compact(progress=lambda n, total: records.append((n, total)))
    assert not report.is_old and report.freed > 0.8 * full
    assert (tmp_path / "log.db").stat().st_size < 0.15 * full
    assert (await store.space()).holes == 0
    assert len(records) > 2 and records[-1][0] == records[-1][1]
    assert await all_of(store) == before
    world.start("another")
    await store.commit(world.take())
    assert await store.verify() == []
    await store.close()


@run_async
async def test_writers_are_not_held_up_by_a_compaction(tmp_path: Path) -> None:
    store, roots, world = await soaked(tmp_path / "log.db", 200)
    await store.commit(Changes(forgotten=roots))
    compaction = asyncio.ensure_future(store.compact())
    n, longest, start = 0, 0.0, time.monotonic()
    while not compaction.done():
        world.start()
        began = time.monotonic()
        await store.commit(world.take())
        longest = max(longest, time.monotonic() - began)
        n += 1
    assert n > 3 and longest < max(5.0, (time.monotonic() - start) / 2)
    assert (await compaction).freed > 1_000_000
    assert await store.verify() == []
    await store.close()


@run_async
async def test_a_big_tree_is_forgotten_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "RUNS_AT_ONCE", 5)
    monkeypatch.setattr(deletion, "EVENTS_AT_ONCE", 20)
    store, world = SqliteStore(tmp_path / "log.db"), World()
    await store.open()
    root, children = world.family(*"abcdefghijklmnopqr")
    other, _ = world.family()
    for child in children:
        world.say(child)
    await store.commit(world.take())
    assert not await store.thin(root), "it is open"
    world.say(root)
    await store.commit(world.take())
    records = []
    while await store.thin(root):
        records.append((len(await store.known(children)), len(await store.entries(tree=root))))
        assert await store.verify() == []
    assert len(records) > 4 and records == sorted(records, reverse=True)
    assert await store.expendable(beyond=0) == [root] and await store.known(children) != set()
    await store.commit(Changes(forgotten=[root]))
    assert await store.known([root, other, *children]) == {other}
    assert not await store.thin(root) and not await store.thin("nobody")
    assert await store.verify() == []
    await store.close()


@run_async
async def test_whoever_comes_after_the_end_is_told(tmp_path: Path) -> None:
    store, world = SqliteStore(tmp_path / "log.db"), World()
    await store.open()
    group = store._group
    assert group is not None
    group._queue.put(None)
    late = [
        asyncio.ensure_future(group.do(lambda: 1)),
        asyncio.ensure_future(store.commit(world.take())),
    ]
    await asyncio.sleep(0)
    await store.close()
    for one in late:
        with pytest.raises(StoreError, match="closed"):
            await one


@run_async
async def test_a_file_of_an_older_version_is_rebuilt_only_when_that_is_asked_for(
    tmp_path: Path,
) -> None:
    world = World()
    old = Old(tmp_path / "log.db", 2)
    roots = [world.start("x" * 20_000) for _ in range(30)]
    for root in roots:
        world.say(root)
    old.write(world.take())
    old.close()
    store = SqliteStore(tmp_path / "log.db")
    await store.open()
    await store.commit(Changes(forgotten=roots[1:]))
    report = await store.compact()
    assert report.is_old and report.after.holes > 1_000_000
    before = await all_of(store)
    report = await store.compact(rebuild=True)
    assert not report.is_old and report.after.holes == 0 and report.freed > 1_000_000
    assert await all_of(store) == before
    assert await store.verify() == []
    await store.close()
    again = SqliteStore(tmp_path / "log.db")
    await again.open()
    assert not (await again.compact()).is_old
    assert await all_of(again) == before
    await again.close()


@run_async
async def test_artifacts_that_nobody_names_are_collected_when_they_are_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, world = SqliteStore(tmp_path / "log.db"), World()
    await store.open()
    named, lost_hash = [(await store.put_artifact(text)).sha256 for text in (b"named", b"lost")]
    world.start(f"see {named}")
    await store.commit(world.take())
    store = store.survivor()
    await store.open()
    waiting = (await store.put_artifact(b"waiting")).sha256
    await store.compact()
    assert await store.get_artifact(lost_hash) == b"lost", "it may be named yet"
    monkeypatch.setattr(artifacts, "SAFE_SECONDS", -1.0)
    assert (await store.compact()).freed >= 4
    with pytest.raises(NotFound):
        await store.get_artifact(lost_hash)
    assert [await store.get_artifact(name) for name in (named, waiting)] == [b"named", b"waiting"]
    await store.close()


@run_async
async def test_a_copy_that_is_being_made_keeps_the_artifacts_that_it_names(tmp_path: Path) -> None:
    store, world = SqliteStore(tmp_path / "log.db"), World()
    await store.open()
    name = (await store.put_artifact(b"named")).sha256
    root = world.start(f"see {name}")
    world.say(root)
    await store.commit(world.take())
    path = tmp_path / "log.db.artifacts" / name[:2] / name
    with store._artifacts.keep_while_copying():
        await store.commit(Changes(forgotten=[root]))
        assert is_there(path)
    assert not is_there(path)
    await store.close()
