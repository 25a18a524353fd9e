"""The store in a SQLite file keeps the contract, with its thread and without; and what only a file
has."""

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest

import retinue.store
from retinue.core.task_list import Added
from retinue.errors import ConfigError, NotFound, StoreCorrupt, StoreError
from retinue.store.sqlite import database_file
from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.contracts.store import StoreContract, World, all_of, run_async
from tests.store.sqlite_files import filled, modes_in, opened


class TestSqlite(StoreContract):
    def make(self, folder: Path) -> SqliteStore:
        return SqliteStore(folder / "log.db")


class TestInline(StoreContract):
    def make(self, folder: Path) -> SqliteStore:
        return SqliteStore(folder / "log.db", inline=True)


def test_transactions_begin_immediate_and_in_no_other_way() -> None:
    folder = Path(retinue.store.__file__).parent
    source = "\n".join(path.read_text() for path in [*folder.rglob("*.py"), *folder.rglob("*.sql")])
    matches = re.findall(r"""(?i)["'; ]begin(?: \w+)?["';]""", source)
    assert set(matches) == {'"BEGIN IMMEDIATE"'}
    assert not re.search(r"(?i)savepoint|with (self\._)?db:", source)


def test_the_migrations_are_numbered_without_gaps() -> None:
    names = [path.name for path in database_file.migrations()]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


def test_a_level_of_synchronisation_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="FULL"):
        SqliteStore(tmp_path / "log.db", synchronous="full; drop table events")


@run_async
async def test_the_database_is_in_wal_mode_fully_synchronised_with_foreign_keys(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    db = store._writer._db
    assert db.pragma("journal_mode") == "wal"
    assert db.pragma("synchronous") == 2
    assert db.pragma("foreign_keys") == 1
    await store.close()


@run_async
async def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = await filled(tmp_path)
        artifact = await store.put_artifact(b"secret")
        await store.backup(str(tmp_path / "copy.db"))
    finally:
        os.umask(before)
    modes = modes_in(tmp_path)
    sha = artifact.sha256
    assert {
        "log.db",
        "log.db-wal",
        "log.db.lock",
        f"log.db.artifacts/{sha[:2]}/{sha}",
        "copy.db",
    } <= modes.keys()
    assert set(modes.values()) == {"-rw-------", "drwx------"}
    await store.close()


@run_async
async def test_a_closed_store_is_one_complete_file(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    before = await all_of(store)
    await store.close()
    assert not (tmp_path / "log.db-wal").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "log.db").rename(tmp_path / "other" / "log.db")
    again = await opened(tmp_path / "other")
    assert await all_of(again) == before
    await again.close()


# reading while writing


@run_async
async def test_a_backup_made_while_writing_is_whole(tmp_path: Path) -> None:
    store, world = await opened(tmp_path), World()
    await store.commit(world.take())
    artifact = await store.put_artifact(b"kept beside the log")

    async def write() -> None:
        for _ in range(60):
            _, (child, *_) = world.family()
            world.say(child)
            await store.commit(world.take())

    writing = asyncio.ensure_future(write())
    copies = []
    for n in range(4):
        await asyncio.sleep(0.005)
        copies.append(tmp_path / f"copy{n}.db")
        await store.backup(str(copies[-1]))
    await writing
    everything = await store.entries(limit=100_000)
    await store.close()
    for copy in copies:
        assert f"{copy.name}-wal" not in os.listdir(tmp_path)
        again = SqliteStore(copy)
        await again.open()
        assert await again.verify() == []
        entries = await again.entries(limit=100_000)
        assert entries and entries == everything[: len(entries)]
        assert await again.get_artifact(artifact.sha256) == b"kept beside the log"
        await again.close()


@run_async
async def test_a_backup_never_overwrites(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(StoreError, match="already exists"):
        await store.backup(str(tmp_path / "precious"))
    assert (tmp_path / "precious").read_text() == "mine"
    with pytest.raises(StoreError, match="Cannot write the copy"):
        await store.backup(str(tmp_path / "no" / "folder" / "copy.db"))
    await store.close()


@run_async
async def test_a_damaged_artifact_is_not_given_out(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    artifact = await store.put_artifact(b"as it was")
    path = tmp_path / "log.db.artifacts" / artifact.sha256[:2] / artifact.sha256
    path.write_bytes(b"as it isn")
    with pytest.raises(StoreCorrupt, match=r"does not match its hash"):
        await store.get_artifact(artifact.sha256)
    path.write_bytes(b"as it")
    await store.put_artifact(b"as it was")
    assert await store.get_artifact(artifact.sha256) == b"as it was"
    await store.close()


@run_async
async def test_the_name_of_an_artifact_leads_nowhere_else(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "here")
    store = await opened(tmp_path / "here")
    await store.put_artifact(b"x")
    shutil.copy(tmp_path / "here" / "log.db", tmp_path / "secret")
    assert os.stat(tmp_path / "here" / "log.db.artifacts" / ".." / "../secret").st_size
    with pytest.raises(NotFound, match="64 hexadecimal digits"):
        await store.get_artifact("../secret")
    await store.close()


@run_async
async def test_half_written_artifacts_are_swept_away(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.put_artifact(b"x")
    heir = store.survivor()
    part = tmp_path / "log.db.artifacts" / "new" / "4711-1"
    part.write_bytes(b"half")
    await heir.open()
    assert not part.exists()
    await heir.close()


# migrations


@pytest.fixture
def second_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "migrations"
    folder.mkdir()
    for file in database_file.migrations():
        (folder / file.name).write_bytes(file.read_bytes())
    n = len(database_file.migrations()) + 1
    file = folder / f"{n:04}_more.sql"
    file.write_text("create table more (x integer); insert into more values (1);")
    file.with_suffix(".bad").write_text(
        "create table more (x integer); insert into nowhere values (1);"
    )
    return file


@run_async
async def test_a_copy_is_kept_before_a_migration(
    tmp_path: Path, second_migration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    before = await all_of(store)
    heir = store.survivor()
    old = tmp_path / f"log.db.before-{second_migration.name[:4]}"
    old.write_text("an earlier try")
    monkeypatch.setattr(database_file, "MIGRATIONS", second_migration.parent)
    await heir.open()
    assert await all_of(heir) == before
    await heir.close()
    assert old.read_text() == "an earlier try"
    monkeypatch.undo()
    copy = SqliteStore(f"{old}-2")
    await copy.open()
    assert await all_of(copy) == before
    await copy.close()


@run_async
async def test_an_act_on_a_board_shares_a_transaction_without_harm(tmp_path: Path) -> None:
    store, world = await opened(tmp_path), World()
    root = world.start()
    await store.commit(world.take())
    world.say(root)
    acts = [store.note(id, "k", 1, Added(titles=("x",))) for id in ("nobody", root, root)]
    await asyncio.gather(acts[0], store.commit(world.take()), *acts[1:])
    assert [len(await store.task_list(id)) for id in ("nobody", root)] == [0, 1]
    assert (await store.entries(run=root))[-1][1].event.reply.message.text == "Done."
    assert await store.verify() == []
    await store.close()


@run_async
async def test_a_migration_that_fails_leaves_the_old_schema(
    tmp_path: Path, second_migration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await filled(tmp_path)
    before = await all_of(store)
    await store.close()
    os.rename(second_migration.with_suffix(".bad"), second_migration)
    monkeypatch.setattr(database_file, "MIGRATIONS", second_migration.parent)
    again = SqliteStore(tmp_path / "log.db")
    with pytest.raises(StoreError, match="nowhere"):
        await again.open()
    monkeypatch.undo()
    await again.open()
    assert await all_of(again) == before
    assert "more" not in [name for (name,) in again._reader._all("select name from sqlite_schema")]
    await again.close()


@run_async
async def test_a_new_database_leaves_no_copy_behind(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.close()
    assert sorted(os.listdir(tmp_path)) == ["log.db", "log.db.lock", "log.db.sent"]
