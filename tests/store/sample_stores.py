"""What the tests of the SQLite store share: a store with something in it, and ways to harm its
files."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.contracts.store import World
from tests.waiting import SECONDS

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
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS)
