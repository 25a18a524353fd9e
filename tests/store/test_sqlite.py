"""The store in a SQLite file keeps the contract, with its thread and without; and what only a file has."""

import asyncio
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

import retinue.store
from retinue.core.events import CancelAsked, Forgotten
from retinue.core.task_list import Added
from retinue.core.tree import Changes
from retinue.errors import ConfigError, NotFound, StoreCorrupt, StoreError, StoreFull
from retinue.store.sqlite import database_file as sqlite_open
from retinue.store.sqlite import sqlite_store as sqlite
from retinue.store.sqlite import tree_logs as sqlite_log
from retinue.store.sqlite import writer as sqlite_write
from retinue.store.sqlite.commit_group import Job
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.store.sqlite.tables import Batch
from tests.contracts.store import StoreContract, World, all_of, run_async, texts


class TestSqlite(StoreContract):
    def make(self, folder: Path) -> SqliteStore:
        return SqliteStore(folder / "log.db")


class TestInline(StoreContract):
    def make(self, folder: Path) -> SqliteStore:
        return SqliteStore(folder / "log.db", inline=True)


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
    return {path.relative_to(folder).as_posix(): stat.filemode(path.stat().st_mode) for path in folder.rglob("*")}


def flip(path: Path, value: bytes, at: int) -> None:
    """Rot: one bit of `value`, in every place of a file where it stands."""
    path.write_bytes(path.read_bytes().replace(value, value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]))


def alter(path: Path, sql: str, *args: Any) -> None:
    db = apsw.Connection(str(path))
    db.execute(sql, args)
    db.close()


def test_transactions_begin_immediate_and_in_no_other_way() -> None:
    folder = Path(retinue.store.__file__).parent
    source = "\n".join(path.read_text() for path in [*folder.rglob("*.py"), *folder.rglob("*.sql")])
    found = re.findall(r"""(?i)["'; ]begin(?: \w+)?["';]""", source)
    assert set(found) == {'"BEGIN IMMEDIATE"'}
    assert not re.search(r"(?i)savepoint|with (self\._)?db:", source)


def test_the_migrations_are_numbered_without_gaps() -> None:
    names = [path.name for path in sqlite_open.migrations()]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


def test_a_level_of_synchronisation_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="FULL"):
        SqliteStore(tmp_path / "log.db", synchronous="full; drop table events")


@run_async
async def test_the_database_is_in_wal_mode_fully_synchronised_with_foreign_keys(tmp_path: Path) -> None:
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
    assert {"log.db", "log.db-wal", "log.db.lock", f"log.db.artifacts/{sha[:2]}/{sha}", "copy.db"} <= modes.keys()
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


# group commit


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
    with pytest.raises(StoreFull, match="can then be written"):
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
    rows = [Batch(events=[("", "", 1, b"{}", bytes(32))]) for _ in range(3)]
    late = [Job(lambda row=row: row, loop, loop.create_future(), 0) for row in rows]
    store._writer.write = fail_once  # type: ignore[method-assign]
    results = await asyncio.gather(*(store.commit(batch) for batch in batches), return_exceptions=True)
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
    sent = [batches[0], batches[1], bad, batches[2], worse, batches[3], batches[4]]
    results = await asyncio.gather(*(store.commit(one) for one in sent), return_exceptions=True)
    wrong = [results.pop(4), results.pop(2)]
    assert all(isinstance(error, StoreError) and "Nothing of it was kept" in str(error) for error in wrong)
    assert results == sorted(results) and results[-1] == len(await store.entries())
    assert len(await store.listing()) == 4
    assert await store.verify() == []
    await store.close()


@run_async
async def test_rows_are_made_in_the_writers_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, made = set[str](), sqlite.encode

    def told(*args: Any, **options: Any) -> Any:
        threads.add(threading.current_thread().name)
        return made(*args, **options)

    monkeypatch.setattr(sqlite, "encode", told)
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
async def test_the_wal_is_emptied_into_the_file_as_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_write, "CHECKPOINT_PAGES", 50)
    store, world = await opened(tmp_path), World()
    await store.commit(world.take())
    for _ in range(40):
        world.family()
        await store.commit(world.take())
    assert (tmp_path / "log.db-wal").stat().st_size < 150 * 4_200
    assert (tmp_path / "log.db").stat().st_size > 100_000
    assert await store.verify() == []
    await store.close()


# the chain


@run_async
async def test_the_chain_holds_and_goes_on_after_reopening(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    assert await store.verify() == []
    await store.close()
    again, world = await opened(tmp_path), World()
    await again.commit(world.take())
    assert await again.verify() == []
    await again.close()


OF_FIRST = "tree = (select tree from events where run <> '' limit 1)"


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "update bodies set body = replace(body, 'Done', 'Gone') where instr(body, 'Done')",
            ["The body of event 8 of tree {tree} is not"],
        ),
        (f"update events set at = at + 1 where {OF_FIRST} and number = 4", ["Event 4 of tree {tree} does not follow"]),
        (f"update events set run = 'x' where {OF_FIRST} and number = 4", ["Event 4 of tree {tree} does not follow"]),
        (
            f"update events set digest = zeroblob(32) where {OF_FIRST} and number = 4",
            ["Event 4 of tree {tree} does not follow", "body of event 4 of tree {tree}"],
        ),
        (
            f"update events set chain = zeroblob(32) where {OF_FIRST} and number = 3",
            ["Event 3 of tree {tree} does not follow", "Event 4 of tree {tree} does not follow"],
        ),
        (
            f"delete from events where {OF_FIRST} and number = 4",
            ["Events 4 to 4 of tree {tree} are missing", "1 bodies"],
        ),
        (f"delete from events where {OF_FIRST} and number < 3", ["Events 1 to 2 of tree {tree} are missing"]),
        (f"delete from events where {OF_FIRST} and number > 4", ["Events 5 to {last} of tree {tree} are missing"]),
        (f"delete from events where {OF_FIRST}", ["Events 1 to {last} of tree {tree} are missing"]),
        (
            f"update events set number = 1000 where {OF_FIRST} and number = 4",
            ["Events 4 to 4 of tree {tree} are missing"],
        ),
        (f"update events set at = 'noon' where {OF_FIRST} and number = 3", ["Event 3 of tree {tree} does not follow"]),
        ("update events set at = 0 where seq = 1", ["Event 1 of the store does not follow"]),
        ("update events set tree = 77, number = -seq where seq > 8", ["belong to trees that are not there"]),
        ("update trees set chain = zeroblob(32) where root = ''", ["log of the store does not end where it should"]),
        ("update trees set last = last - 1 where root <> ''", ["log of tree {tree} does not end where it should"]),
        ("update trees set root = 'another' where root = '{tree}'", ["Event 1 of tree another does not follow"]),
        ("delete from conversations where id = (select id from conversations limit 1)", ["refers to a row"]),
    ],
)
@run_async
async def test_a_row_that_is_not_what_was_written_is_named(tmp_path: Path, sql: str, says: list[str]) -> None:
    store = await filled(tmp_path)
    ((tree, last),) = store._reader._all("select root, last from trees where n = 2")
    alter(tmp_path / "log.db", "update bodies set body = body")
    assert await store.verify() == []
    alter(tmp_path / "log.db", sql.replace("{tree}", tree))
    found = await store.verify()
    for text in says:
        assert any(text.format(tree=tree, last=last) in sentence for sentence in found), found
    await store.close()


@run_async
async def test_bit_rot_inside_a_value_is_named_by_its_number(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    seqs = [seq for seq, entry in await store.entries() if "Done." in repr(entry)]
    (body,) = store._reader._all("select body from bodies where seq = ?", (seqs[1],))[0]
    ((number, tree),) = store._reader._all(
        "select number, root from events join trees on tree = n where seq = ?", (seqs[1],)
    )
    await store.close()
    flip(tmp_path / "log.db", body, body.find(b"Done."))
    again = await opened(tmp_path)
    assert again._reader._all("pragma integrity_check") == [("ok",)]
    assert await again.verify() == [f"The body of event {number} of tree {tree} is not what was written."]
    await again.close()


@run_async
async def test_a_forgotten_tree_leaves_one_row(tmp_path: Path) -> None:
    store, world = await opened(tmp_path), World()
    root, _ = world.family("the secret of the tomb")
    world.apply(root, CancelAsked())
    await store.commit(world.take())
    ((n, chain),) = store._reader._all("select last, chain from trees where root = ?", (root,))
    world.apply("", Forgotten(root=root))
    last = await store.commit(world.take())
    assert await store.verify() == []
    await store.close()
    db = apsw.Connection(str(tmp_path / "log.db"))
    assert db.execute("select count(*) from events").get == 3
    row = db.execute("select last, chain, cut, cut_chain, forgotten_at from trees where root = ?", (root,)).fetchone()
    assert row == (n, chain, n, chain, world.at)
    for table in ("bodies", "messages", "runs", "specs", "mail", "outbox", "accounts"):
        assert db.execute(f"select count(*) from {table} where instr(body, 'tomb')").get == 0
    db.execute("delete from events")
    db.execute("delete from bodies")
    db.close()
    again = await opened(tmp_path)
    assert (await again.load()).last_seq == last, "a position is not given out twice"
    await again.close()


@run_async
async def test_a_child_that_was_not_to_be_kept_keeps_its_place_in_the_chain(tmp_path: Path) -> None:
    store, world = await opened(tmp_path), World()
    root, (child, other) = world.family("the secret of the tomb", "b", retention="delete")
    world.say(child)
    world.say(other)
    await store.commit(world.take())
    assert await store.row(child) is None and await store.row(root) is not None
    left = store._reader._all("select count(*) from events e left join bodies using (seq) where e.run = ?", (child,))
    assert left[0][0] and await store.entries(run=child) == []
    assert store._reader._all("select count(*) from bodies where instr(body, 'Done.')") == [(0,)]
    numbers = [n for n, _ in await store.entries(tree=root)]
    assert numbers != list(range(1, len(numbers) + 1))
    assert await store.verify() == []
    await store.close()


@run_async
async def test_the_heads_that_are_kept_in_memory_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_log, "MOST_HEADS", 5)
    store, world = await opened(tmp_path), World()
    roots = [world.start() for _ in range(20)]
    await store.commit(world.take())
    assert len(store._writer._heads) == 5
    for root in roots:
        world.say(root)
        await store.commit(world.take())
    assert not any(root in store._writer._heads._known for root in roots)
    assert await store.verify() == []
    await store.close()


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
        found = await again.entries(limit=100_000)
        assert found and found == everything[: len(found)]
        assert await again.get_artifact(artifact.sha256) == b"kept beside the log"
        await again.close()


@run_async
async def test_a_backup_never_overwrites(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        await store.backup(str(tmp_path / "precious"))
    assert (tmp_path / "precious").read_text() == "mine"
    with pytest.raises(StoreError, match="could not be written"):
        await store.backup(str(tmp_path / "no" / "folder" / "copy.db"))
    await store.close()


@run_async
async def test_a_damaged_artifact_is_not_given_out(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    kept = await store.put_artifact(b"as it was")
    path = tmp_path / "log.db.artifacts" / kept.sha256[:2] / kept.sha256
    path.write_bytes(b"as it isn")
    with pytest.raises(StoreCorrupt, match=r"not what was written"):
        await store.get_artifact(kept.sha256)
    path.write_bytes(b"as it")
    await store.put_artifact(b"as it was")
    assert await store.get_artifact(kept.sha256) == b"as it was"
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
    for file in sqlite_open.migrations():
        (folder / file.name).write_bytes(file.read_bytes())
    n = len(sqlite_open.migrations()) + 1
    file = folder / f"{n:04}_more.sql"
    file.write_text("create table more (x integer); insert into more values (1);")
    file.with_suffix(".bad").write_text("create table more (x integer); insert into nowhere values (1);")
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
    monkeypatch.setattr(sqlite_open, "MIGRATIONS", second_migration.parent)
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
    assert [len(await store.board(id)) for id in ("nobody", root)] == [0, 1]
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
    monkeypatch.setattr(sqlite_open, "MIGRATIONS", second_migration.parent)
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
