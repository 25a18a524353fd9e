"""Files are cut, copied and replaced by others: nothing that was acknowledged is lost, and what is
damaged is left."""

import asyncio
import os
import random
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from retinue.core.changes import Changes
from retinue.errors import StoreCorrupt, StoreError, StoreTooNew
from tests.contracts.store import World, run_async
from tests.store.sample_stores import contents, filled, opened, overwrite


@run_async
async def test_a_file_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path / "log.db")
    store = store.survivor()
    db = apsw.Connection(str(tmp_path / "log.db"))
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.pragma("user_version", 99)
    db.close()
    before = contents(tmp_path, "log.db", "log.db-wal")
    assert len(before) == 2
    with pytest.raises(StoreTooNew, match=r"schema 99.*was not changed"):
        await store.open()
    assert contents(tmp_path, "log.db", "log.db-wal") == before
    db = apsw.Connection(str(tmp_path / "log.db"))
    assert db.execute("select value from meta where key = 'epoch'").get == 1
    db.close()


@run_async
async def test_the_database_of_another_program_is_refused_untouched(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "log.db"))
    db.execute("create table songs (name)")
    db.close()
    before = contents(tmp_path, "log.db")
    with pytest.raises(StoreError, match="another program"):
        await opened(tmp_path / "log.db")
    assert contents(tmp_path, "log.db") == before


@pytest.mark.parametrize("damage", ["header", "text", "truncated", "first page"])
@run_async
async def test_a_damaged_file_is_refused_untouched(tmp_path: Path, damage: str) -> None:
    store, _ = await filled(tmp_path / "log.db")
    await store.close()
    path = tmp_path / "log.db"
    if damage == "header":
        overwrite(path, 0, b"\xff" * 100)
    elif damage == "text":
        overwrite(
            path, 0, b"Dear diary, today I wrote into a database that was not mine to write in."
        )
    elif damage == "first page":
        overwrite(path, 100, b"\xff" * 3_000)
    else:
        os.truncate(path, 3 * 4_096 + 100)
    before = contents(tmp_path, "log.db")
    with pytest.raises(StoreCorrupt, match=r"was not changed.*Restore a backup"):
        await opened(path)
    assert contents(tmp_path, "log.db") == before
    with pytest.raises(StoreCorrupt):
        await opened(path)


@run_async
async def test_a_damaged_page_is_reported_when_it_is_read(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path / "log.db")
    (page,) = store._reader._all("select rootpage from sqlite_schema where name = 'messages'")[0]
    listing = await store.listing()
    await store.close()
    overwrite(tmp_path / "log.db", (page - 1) * 4_096, b"\xff" * 4_096)
    again = await opened(tmp_path / "log.db")
    with pytest.raises(StoreCorrupt, match="is damaged"):
        await again.messages(listing[0].id)
    assert await again.listing() == listing
    assert any("structure" in sentence for sentence in await again.verify())
    await again.close()


@run_async
async def test_a_row_that_is_not_json_is_reported_when_it_is_read(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path / "log.db")
    root = (await store.listing())[0].id
    db = apsw.Connection(str(tmp_path / "log.db"))
    db.execute("update runs set body = substr(body, 3) where id = ?", (root,))
    db.close()
    with pytest.raises(StoreCorrupt, match="is damaged"):
        await store.row(root)
    with pytest.raises(StoreCorrupt, match="is damaged"):
        await store.load()
    await store.close()


@run_async
async def test_a_folder_or_a_missing_folder_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Use a folder that exists"):
        await opened(tmp_path / "no" / "log.db")
    (tmp_path / "log.db").mkdir()
    with pytest.raises(StoreError, match="Cannot open"):
        await opened(tmp_path / "log.db")


@run_async
async def test_a_wal_without_its_database_is_not_thrown_away(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path / "log.db")
    store = store.survivor()
    os.rename(tmp_path / "log.db", tmp_path / "elsewhere")
    before = contents(tmp_path, "log.db-wal")
    with pytest.raises(StoreCorrupt, match="is missing"):
        await store.open()
    assert contents(tmp_path, "log.db-wal") == before
    os.rename(tmp_path / "elsewhere", tmp_path / "log.db")
    await store.open()
    assert await store.verify() == []
    await store.close()


@run_async
async def test_a_copy_without_the_wal_is_refused_untouched(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path / "log.db")
    shutil.copy(tmp_path / "log.db", tmp_path / "copy.db")
    before = contents(tmp_path, "copy.db")
    with pytest.raises(StoreCorrupt, match="without its -wal file"):
        await opened(tmp_path / "copy.db")
    assert contents(tmp_path, "copy.db") == before
    await store.close()
    # Closed, one file is all there is.
    shutil.copy(tmp_path / "log.db", tmp_path / "copy2.db")
    again = await opened(tmp_path / "copy2.db")
    assert await again.verify() == []
    await again.close()


@run_async
async def test_a_crash_whose_wal_another_tool_has_emptied_is_no_copy(tmp_path: Path) -> None:
    store, lasts = await filled(tmp_path / "log.db")
    store = store.survivor()
    db = apsw.Connection(str(tmp_path / "log.db"))
    db.execute("select * from events").fetchall()
    db.close()
    assert "log.db-wal" not in os.listdir(tmp_path)
    await store.open()
    assert len(await store.entries()) == lasts[-1]
    await store.close()


def test_a_torn_wal_gives_a_prefix_of_whole_commits(tmp_path: Path) -> None:
    async def write() -> tuple[list[int], list[Any]]:
        store, lasts = await filled(tmp_path / "log.db", 12)
        entries = await store.entries(limit=10_000)
        for name in ("log.db", "log.db-wal"):
            shutil.copy(tmp_path / name, tmp_path / f"{name}.taken")
        await store.close()
        return lasts, entries

    async def check(path: Path, lasts: list[int], entries: list[Any]) -> int:
        store = await opened(path)
        result = await store.entries(limit=10_000)
        assert result == entries[: len(result)]
        assert len(result) in (0, *lasts)
        assert await store.verify() == []
        for row in (await store.load()).open:
            assert len(await store.messages(row.spec.conversation)) == row.run.length
            assert await store.account(row.spec.id) is not None
        world = World()
        assert await store.commit(world.take()) == len(result) + 2
        assert await store.verify() == []
        await store.close()
        return len(result)

    lasts, entries = asyncio.run(write())
    wal = (tmp_path / "log.db-wal.taken").read_bytes()
    rng = random.Random(40)
    record = set()
    for n in range(40):
        folder = tmp_path / f"torn{n}"
        folder.mkdir()
        shutil.copy(tmp_path / "log.db.taken", folder / "log.db")
        position = rng.randrange(len(wal) + 1)
        torn = wal[:position]
        if n % 3 == 0 and position > 1_024:  # a sector of garbage instead of a clean cut
            at = rng.randrange(position - 512)
            torn = wal[:at] + rng.randbytes(512) + wal[at + 512 :]
        (folder / "log.db-wal").write_bytes(torn)
        record.add(asyncio.run(check(folder / "log.db", lasts, entries)))
    assert len(record) > 4


@pytest.mark.parametrize("what", ["deleted", "replaced", "wal deleted", "folder moved"])
@run_async
async def test_a_file_that_is_taken_away_is_noticed_at_once(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "here"
    os.mkdir(folder)
    store, _ = await filled(folder / "log.db")
    if what == "replaced":
        shutil.copy(folder / "log.db", folder / "other")
        os.rename(folder / "other", folder / "log.db")
    elif what == "folder moved":
        os.rename(folder, tmp_path / "there")
    else:
        os.unlink(folder / ("log.db-wal" if what == "wal deleted" else "log.db"))
    world = World()
    for _ in range(2):
        with pytest.raises(
            StoreError, match=r"moved, deleted or replaced.*This batch was not saved"
        ):
            await store.commit(world.take())
    await store.close()


@pytest.mark.parametrize("what", ["", "-wal"])
@pytest.mark.parametrize("rest", [0, 0.5, 0.99])
@run_async
async def test_a_file_that_is_cut_is_noticed_at_the_next_commit(
    tmp_path: Path, what: str, rest: float
) -> None:
    store, _ = await filled(tmp_path / "log.db", 20)
    if not what:
        store._writer._checkpoint()
    path = tmp_path / f"log.db{what}"
    whole = path.read_bytes()
    os.truncate(path, int(len(whole) * rest))
    world = World()
    world.start(id="new")
    changes = world.take()
    for _ in range(2):
        with pytest.raises(
            StoreCorrupt, match=r"was truncated while it was in use.*This batch was not saved"
        ):
            await store.commit(changes)
    path.write_bytes(whole)
    assert await store.commit(changes)
    assert await store.verify() == []
    await store.close()


@run_async
async def test_a_wal_that_another_program_has_emptied_properly_is_no_harm(tmp_path: Path) -> None:
    store, lasts = await filled(tmp_path / "log.db", 20)
    db = apsw.Connection(str(tmp_path / "log.db"))
    db.execute("select * from meta").fetchall()
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    db.close()
    assert (tmp_path / "log.db-wal").stat().st_size == 0
    changes = World().take()
    assert await store.commit(changes) == lasts[-1] + len(changes.entries)
    assert await store.verify() == []
    await store.close()


@run_async
async def test_a_file_that_another_program_has_shortened_properly_is_no_harm(
    tmp_path: Path,
) -> None:
    store, world = await opened(tmp_path / "log.db"), World()
    roots = [world.start("x" * 20_000) for _ in range(20)]
    for root in roots:
        world.say(root)
    await store.commit(world.take())
    await store.compact()
    await store.commit(Changes(forgotten=roots))
    while store._writer.free(100):
        pass
    full = size_of(tmp_path / "log.db")
    db = apsw.Connection(str(tmp_path / "log.db"))
    db.execute("select * from meta").fetchall()
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    db.close()
    assert size_of(tmp_path / "log.db") < full
    world.start()
    await store.commit(world.take())
    assert await store.verify() == []
    await store.close()


def size_of(path: Path) -> int:
    return path.stat().st_size
