"""No space, no rights: what was acknowledged is kept, and it goes on later."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.store.sample_stores import contents, filled, python, run

FILL = """
    import asyncio, sys
    from retinue.errors import StoreFull
    from retinue.store.sqlite.sqlite_store import SqliteStore
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
                assert "This batch is not saved yet" in str(error), error
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


def test_a_file_that_may_not_grow_keeps_what_was_acknowledged_and_goes_on_later(
    tmp_path: Path,
) -> None:
    limit = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    """
    result = run(python(limit + FILL, tmp_path / "log.db"))
    assert result.stdout == "ok 3\n", result.stderr


def in_a_sandbox(folder: Path, kind: str, command: list[str]) -> list[str]:
    """The command with `folder` on a small disk of its own, or read-only. Skips where neither way
    is permitted."""
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
    result = run(in_a_sandbox(tmp_path, "small", python(limit + FILL, tmp_path / "log.db")))
    assert result.stdout == "ok 3\n", result.stderr


OPEN = """
    import asyncio, sys
    from retinue.errors import StoreError
    from retinue.store.sqlite.sqlite_store import SqliteStore
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
    result = run(in_a_sandbox(folder, "read-only", python(OPEN, folder / "log.db")))
    assert "(Read-only file system)" in result.stdout, result.stderr
    assert "Nothing was changed" in result.stdout and result.stdout.count("\n") == 1
    assert contents(folder, "log.db") == before


def test_a_read_only_file_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()

    async def make() -> None:
        store, _ = await filled(folder / "log.db")
        await store.close()

    asyncio.run(make())
    before = contents(folder, "log.db")
    result = run(in_a_sandbox(folder / "log.db", "read-only", python(OPEN, folder / "log.db")))
    assert "for writing" in result.stdout, result.stderr
    assert "Nothing was changed" in result.stdout and result.stdout.count("\n") == 1
    assert contents(folder, "log.db") == before
