"""Many workers on one database: each writes the trees that it has taken, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue.core.changes import Changes
from retinue.core.events import LogEntry
from retinue.errors import StoreError, StoreLocked, TreeTaken
from retinue.store.memory import MemoryStore
from retinue.store.postgres.connections import connect
from retinue.store.postgres.database import PostgresDatabase
from retinue.store.postgres.postgres_store import PostgresStore, PostgresTree
from tests.contracts.world import World, run_async, texts
from tests.postgres import fresh


async def worker(url: str) -> PostgresDatabase:
    database = PostgresDatabase(url)
    await database.open()
    return database


async def begun(
    database: PostgresDatabase, task: str = "Do it."
) -> tuple[PostgresTree, World, str]:
    """A tree with a root that is thinking."""
    world = World()
    root = world.start(task, id=f"root of {task}")
    tree = PostgresTree(database, root)
    await tree.open()
    await tree.commit(world.take())
    return tree, world, root


@run_async
async def test_a_tree_is_read_back_whole_by_the_next_worker() -> None:
    url = fresh()
    one = await worker(url)
    tree, world, root = await begun(one)
    world.call(root, "spawn")
    (first, second) = world.spawn(root, "a", "b")
    world.say(first, "a is done")
    await tree.commit(world.take())
    two = await worker(url)
    heir = PostgresTree(two, root)
    assert await heir.open() > tree.epoch
    snapshot, store = await heir.load(), MemoryStore()
    assert {row.spec.id for row in snapshot.open} == {root, second}
    assert [row.spec.id for row in snapshot.back] == [first]
    assert {row.spec.id: row.run for row in snapshot.open} == {
        id: world.run(id) for id in (root, second)
    }
    assert [d.name for d in snapshot.definitions] == ["worker"]
    assert store.sent.is_unsent(root, 0, 1)
    world.say(second)
    await heir.commit(world.take())
    numbers = [n for n, _ in await heir.entries(tree=root)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert await heir.verify() == []
    await one.close()
    await two.close()


@run_async
async def test_a_tree_loads_nothing_of_another() -> None:
    database = await worker(fresh())
    one, _, root = await begun(database, "one")
    two, _, other = await begun(database, "two")
    assert [row.spec.id for row in (await one.load()).open] == [root]
    assert [a.id for a in (await two.load()).accounts] == [other]
    assert {line.id for line in await one.listing()} == {root, other}
    await database.close()


@run_async
async def test_of_a_transaction_only_the_tree_that_was_taken_is_refused() -> None:
    url = fresh()
    mine, other = await worker(url), await worker(url)
    trees = [await begun(mine, f"{n}") for n in range(6)]
    heir = PostgresTree(other, trees[2][2])
    await heir.open()
    for _, world, root in trees:
        world.call(root, "read")
    result = await asyncio.gather(
        *(tree.commit(world.take()) for tree, world, _ in trees), return_exceptions=True
    )
    assert [type(one) is TreeTaken for one in result] == [n == 2 for n in range(6)]
    assert "owned by another worker" in str(result[2])
    for n, (tree, _, root) in enumerate(trees):
        assert len(texts(await tree.messages(root))) == (1 if n == 2 else 2)
    with pytest.raises(TreeTaken):
        await trees[2][0].commit(Changes())
    with pytest.raises(StoreError, match="taken over"):
        await trees[2][0].put_artifact(b"late")
    assert await heir.verify() == []
    await mine.close()
    await other.close()


@run_async
async def test_a_tree_that_cannot_be_written_does_not_stop_the_others() -> None:
    database = await worker(fresh())
    trees = [await begun(database, f"{n}") for n in range(4)]
    for _, world, root in trees:
        world.call(root, "read")
    batches: list[Changes] = [world.take() for _, world, _ in trees]
    batches[1].messages.append(batches[1].messages[0])  # the same place twice
    result = await asyncio.gather(
        *(tree.commit(batch) for (tree, _, _), batch in zip(trees, batches, strict=True)),
        return_exceptions=True,
    )
    assert [isinstance(one, StoreError) for one in result] == [False, True, False, False]
    assert type(result[1]) is StoreError and "not saved" in str(result[1])
    assert await trees[0][0].verify() == []
    await database.close()


@run_async
async def test_a_tree_writes_to_no_other_tree() -> None:
    database = await worker(fresh())
    tree, _, _ = await begun(database, "one")
    _, theirs, other = await begun(database, "two")
    theirs.call(other, "read")
    with pytest.raises(StoreError, match="was to write to tree"):
        await tree.commit(theirs.take())
    assert len(await tree.messages(other)) == 1
    await database.close()


@run_async
async def test_the_chain_of_a_tree_is_that_of_sqlite(tmp_path: Any) -> None:
    from retinue.store.sqlite.database_file import connect as connect_file
    from retinue.store.sqlite.sqlite_store import SqliteStore

    database = await worker(url := fresh())
    world = World()
    world.take()
    root = world.start()
    batches = [world.take()]
    world.say(root)
    batches.append(world.take())
    tree, file = PostgresTree(database, root), SqliteStore(tmp_path / "log.db")
    await tree.open()
    await file.open()
    for batch in batches:
        await file.commit(batch)
        await tree.commit(batch)
    await file.close()
    with connect(url) as db:
        here = db.execute("select last, chain from trees where root = %s", (root,)).fetchone()
    there: Any = connect_file(file.path).execute(
        "select last, chain from trees where root = ?", (root,)
    )
    assert here == next(iter(there))
    await database.close()


@run_async
async def test_rows_of_the_inbox_leave_with_the_commit_that_takes_them() -> None:
    database = await worker(url := fresh())
    tree, world, root = await begun(database)

    def rows() -> list[Any]:
        with connect(url) as db:
            return db.execute("select n from inbox order by n").fetchall()

    with connect(url) as db:
        for n in range(3):
            db.execute(
                "insert into inbox (root, key, kind, body) values (%s, %s, 'mail', '{}')",
                (root, f"k{n}"),
            )
    (first,), (second,), (third,) = rows()
    world.call(root, "read")
    tree.leaves(first, second)
    await tree.commit(world.take())
    assert rows() == [(third,)]
    heir = await worker(url)
    await heir.take(root)
    tree.leaves(third)
    with pytest.raises(TreeTaken):
        await tree.commit(Changes())
    assert rows() == [(third,)]
    await database.close()
    await heir.close()


@run_async
async def test_whoever_watches_everything_misses_nothing_of_workers_that_write_at_once() -> None:
    url = fresh()
    workers = [await worker(url) for _ in range(3)]
    watcher = await worker(url)
    reader = PostgresTree(watcher, "nobody")
    numbers: list[int] = []
    event = asyncio.Event()

    async def watch() -> None:
        while True:
            is_last = event.is_set()
            page: list[tuple[int, LogEntry]] = await reader.entries(numbers[-1] if numbers else 0)
            numbers.extend(n for n, _ in page)
            if is_last and not page:
                return

    async def work(database: PostgresDatabase, name: str) -> None:
        tree, world, root = await begun(database, name)
        for _ in range(15):
            world.call(root, "read")
            world.result(root)
            await tree.commit(world.take())

    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*(work(one, f"{n}") for n, one in enumerate(workers)))
    event.set()
    await watching
    with connect(url) as db:
        assert [(n,) for n in numbers] == db.execute(
            "select seq from events order by seq"
        ).fetchall()
    for one in (*workers, watcher):
        await one.close()


@run_async
async def test_a_whole_store_and_workers_keep_each_other_out() -> None:
    url = fresh()
    one = await worker(url)
    with pytest.raises(StoreLocked, match="in use by process"):
        await PostgresStore(url).open()
    tree, _, root = await begun(one)
    await one.close()
    whole = PostgresStore(url)
    assert await whole.open() > tree.epoch
    with pytest.raises(StoreLocked):
        await worker(url)
    await whole.close()
    two = await worker(url)
    assert await two.take(root) > whole.epoch
    await two.close()


@run_async
async def test_a_second_whole_store_is_refused_while_the_first_is_open() -> None:
    url = fresh()
    one = PostgresStore(url)
    await one.open()
    with pytest.raises(StoreLocked, match="Stop that"):
        await PostgresStore(url).open()
    await one.close()
    two = PostgresStore(url)
    await two.open()
    await two.close()
