"""Disks fill up; files are cut, copied, replaced and locked by others. Nothing that was acknowledged is lost, and what
is damaged is left as it is."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from retinue.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreTooNew
from retinue.store import sqlite_open, sqlite_write
from retinue.store.sqlite import SqliteStore
from tests.contracts.store import World, all_of, run_async

ROOT = Path(__file__).resolve().parent.parent.parent


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    return store


async def filled(path: Path, n_batches: int = 5) -> tuple[SqliteStore, list[int]]:
    """A store, and the number of the last event of each commit."""
    store, world = await opened(path), World()
    lasts = [await store.commit(world.take())]
    for _ in range(n_batches):
        _, (child, *_) = world.family()
        world.say(child)
        lasts.append(await store.commit(world.take()))
    return store, lasts


def contents(folder: Path, *names: str) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def python(code: str, *args: object) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=50)


# who else has it open


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    code = """
    import asyncio, sys
    from retinue.store.sqlite import SqliteStore
    asyncio.run(SqliteStore(sys.argv[1]).open())
    print("open", flush=True)
    sys.stdin.read()
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = python(code, tmp_path / "log.db")
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
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
    with pytest.raises(StoreError, match="open already"):
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
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@run_async
async def test_a_foreign_lock_is_waited_for_and_then_named(
    tmp_path: Path, another_writer: Callable[[], subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_open, "BUSY_MS", 200)
    store, lasts = await filled(tmp_path / "log.db")
    other = another_writer()
    changes = World().take()
    with pytest.raises(StoreLocked, match=f"locked by process {other.pid} .*Nothing was changed"):
        await store.commit(changes)
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


# files that are not what they should be


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
    with pytest.raises(StoreTooNew, match=r"schema 99.*left as it is"):
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
        overwrite(path, 0, b"Dear diary, today I wrote into a database that was not mine to write in.")
    elif damage == "first page":
        overwrite(path, 100, b"\xff" * 3_000)
    else:
        os.truncate(path, 3 * 4_096 + 100)
    before = contents(tmp_path, "log.db")
    with pytest.raises(StoreCorrupt, match=r"left as it is.*Restore a backup"):
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
    with pytest.raises(StoreError, match="Choose a folder that exists"):
        await opened(tmp_path / "no" / "log.db")
    (tmp_path / "log.db").mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
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


# copies


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
        found = await store.entries(limit=10_000)
        assert found == entries[: len(found)]
        assert len(found) in (0, *lasts)
        assert await store.verify() == []
        for row in (await store.load()).open:
            assert len(await store.messages(row.spec.conversation)) == row.run.length
            assert await store.account(row.spec.id) is not None
        world = World()
        assert await store.commit(world.take()) == len(found) + 2
        assert await store.verify() == []
        await store.close()
        return len(found)

    lasts, entries = asyncio.run(write())
    wal = (tmp_path / "log.db-wal.taken").read_bytes()
    rng = random.Random(40)
    seen = set()
    for n in range(40):
        folder = tmp_path / f"torn{n}"
        folder.mkdir()
        shutil.copy(tmp_path / "log.db.taken", folder / "log.db")
        cut = rng.randrange(len(wal) + 1)
        torn = wal[:cut]
        if n % 3 == 0 and cut > 1_024:  # a sector of garbage instead of a clean cut
            at = rng.randrange(cut - 512)
            torn = wal[:at] + rng.randbytes(512) + wal[at + 512 :]
        (folder / "log.db-wal").write_bytes(torn)
        seen.add(asyncio.run(check(folder / "log.db", lasts, entries)))
    assert len(seen) > 4


# files that go away


@pytest.mark.parametrize("what", ["deleted", "replaced", "wal deleted", "folder moved"])
@run_async
async def test_a_file_that_is_taken_away_is_noticed(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_write, "CHECK_SECONDS", 0.0)
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
        with pytest.raises(StoreError, match=r"moved, deleted or replaced.*Nothing of this batch was kept"):
            await store.commit(world.take())
    await store.close()


@run_async
async def test_the_files_are_looked_at_every_five_seconds_at_most(tmp_path: Path) -> None:
    store, _ = await filled(tmp_path / "log.db")
    looks = 0
    look = store._writer._identity

    def count() -> Any:
        nonlocal looks
        looks += 1
        return look()

    store._writer._identity = count  # type: ignore[method-assign]
    for _ in range(10):
        await store.commit(World().take())
    assert looks == 0
    store._writer._checked -= 5.0
    await store.commit(World().take())
    assert looks == 1
    await store.close()


# no space, no rights

FILL = """
    import asyncio, sys
    from retinue.errors import StoreFull
    from retinue.store.sqlite import SqliteStore
    from tests.contracts.store import World, all_of

    async def main():
        store, world = SqliteStore(sys.argv[1]), World()
        await store.open()
        acknowledged = await store.commit(world.take())
        limit(400_000)
        n_full = 0
        for n in range(100_000):
            world.family("x" * 2_000, "y" * 2_000)
            changes = world.take()
            try:
                acknowledged = await store.commit(changes)
                continue
            except StoreFull as error:
                assert "Nothing of this batch was kept" in str(error), error
            before = await all_of(store)
            for _ in range(3):
                try:
                    await store.commit(changes)
                    raise AssertionError("the disk is full")
                except StoreFull:
                    n_full += 1
            assert await all_of(store) == before
            entries = await store.entries(limit=1_000_000)
            assert len(entries) == entries[-1][0] == acknowledged
            assert await store.verify() == []
            limit(100_000_000)
            assert await store.commit(changes) == acknowledged + len(changes.entries)
            world.family()
            await store.commit(world.take())
            assert await store.verify() == []
            break
        await store.close()
        again = SqliteStore(sys.argv[1])
        await again.open()
        assert len(await again.entries(limit=1_000_000)) > acknowledged
        assert await again.verify() == []
        await again.close()
        print("ok", n_full)

    asyncio.run(main())
"""


def test_a_file_that_may_not_grow_keeps_what_was_acknowledged_and_goes_on_later(tmp_path: Path) -> None:
    limit = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    """
    done = run(python(limit + FILL, tmp_path / "log.db"))
    assert done.stdout == "ok 3\n", done.stderr


def in_a_sandbox(folder: Path, kind: str, command: list[str]) -> list[str]:
    """The command with `folder` on a small disk of its own, or read-only. Skips where neither way is permitted."""
    if shutil.which("bwrap"):
        mount = ["--size", "3145728", "--tmpfs"] if kind == "small" else ["--ro-bind", str(folder)]
        wrapped = ["bwrap", "--dev-bind", "/", "/", *mount, str(folder), *command]
        probe = [*wrapped[: -len(command)], "true"]
    else:
        mounts = {
            "small": 'mount -t tmpfs -o size=3m tmpfs "$0"',
            "read-only": 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"',
        }
        shell = ["unshare", "--mount", "sh", "-c", mounts[kind] + ' && exec "$@"', str(folder)]
        wrapped, probe = [*shell, *command], [*shell, "true"]
    if not shutil.which(wrapped[0]) or run(probe).returncode:
        pytest.skip("this machine lets us mount nothing")
    return wrapped


def test_a_full_disk_keeps_what_was_acknowledged_and_goes_on_later(tmp_path: Path) -> None:
    limit = """
    import os
    def limit(size):
        ballast = sys.argv[1] + ".ballast"
        if size > 1_000_000:
            os.unlink(ballast)
        else:
            with open(ballast, "wb") as file:
                file.write(bytes(1_500_000))
    """
    done = run(in_a_sandbox(tmp_path, "small", python(limit + FILL, tmp_path / "log.db")))
    assert done.stdout == "ok 3\n", done.stderr


OPEN = """
    import asyncio, sys
    from retinue.errors import StoreError
    from retinue.store.sqlite import SqliteStore
    try:
        asyncio.run(SqliteStore(sys.argv[1]).open())
    except StoreError as error:
        print(error)
"""


@pytest.mark.parametrize("existing", [True, False])
def test_a_read_only_folder_is_refused_in_one_line(tmp_path: Path, existing: bool) -> None:
    folder = tmp_path / "here"
    folder.mkdir()

    async def make() -> None:
        store, _ = await filled(folder / "log.db")
        await store.close()

    if existing:
        asyncio.run(make())
    before = contents(folder, "log.db")
    done = run(in_a_sandbox(folder, "read-only", python(OPEN, folder / "log.db")))
    assert "cannot be written (Read-only file system)" in done.stdout, done.stderr
    assert "Nothing was changed" in done.stdout and done.stdout.count("\n") == 1
    assert contents(folder, "log.db") == before


def test_a_read_only_file_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()

    async def make() -> None:
        store, _ = await filled(folder / "log.db")
        await store.close()

    asyncio.run(make())
    before = contents(folder, "log.db")
    done = run(in_a_sandbox(folder / "log.db", "read-only", python(OPEN, folder / "log.db")))
    assert "cannot be opened for writing" in done.stdout, done.stderr
    assert "Nothing was changed" in done.stdout and done.stdout.count("\n") == 1
    assert contents(folder, "log.db") == before
