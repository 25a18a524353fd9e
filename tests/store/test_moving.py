"""A store moves into another one whole, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.core.changes import Changes
from retinue.core.events import MailReceived, Opened
from retinue.core.task_list import Added
from retinue.core.values import Limits, Mail, Origin
from retinue.errors import StoreError, StoreLocked
from retinue.host.migration import move_store
from retinue.store.postgres.connections import connect
from retinue.store.postgres.postgres_store import PostgresStore
from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.contracts.world import World, all_of, run_async
from tests.postgres import fresh


def silent(what: str, n_done: int, total: int) -> None:
    pass


async def filled(store: Any) -> tuple[World, str]:
    """Something of everything: open and ended runs, mail, announcements, forks, deleted trees,
    artifacts with and without a name, a to-do list."""
    world = World()
    await store.open()
    world.apply("", Opened(epoch=1, limits=Limits()))
    named = (await store.put_artifact(b"named \0 bytes" * 100)).sha256
    await store.put_artifact(b"unnamed")
    root, (child, *_) = world.family(announce=True, origin=Origin(channel="chat"))
    world.apply(root, MailReceived(mail=Mail(seq=0, text=f"see {named}")))
    world.say(child, f"found {named}")
    run = world.start("gone", label="nul \0 ünï")
    world.say(run)
    short, (dropped,) = world.family("kept by nobody", retention="delete")
    world.say(dropped)
    world.say(world.start(announce=True, origin=Origin(channel="chat")))
    await store.commit(world.take())
    await store.commit(Changes(forgotten=[run]))
    await store.note(root, "k", 1, Added(titles=("read",)))
    await store.note(short, "k\0", 1, Added(titles=("write",)))
    return world, root


async def what_is_in(store: Any) -> dict[str, Any]:
    everything = await all_of(store)
    everything["boards"] = {
        id: [(key.replace("\0", "\ufffd"), act) for key, act in board]
        for id, board in everything["boards"].items()
    }
    return everything


@run_async
async def test_a_store_moves_to_postgres_and_back(tmp_path: Path) -> None:
    file, url, again = tmp_path / "log.db", fresh(), tmp_path / "again.db"
    store = SqliteStore(file)
    await filled(store)
    before = await what_is_in(store)
    epoch = store._writer.epoch
    await store.close()
    records: list[tuple[str, int, int]] = []
    counts = move_store(str(file), url, lambda *one: records.append(one))
    assert counts["artifacts"] == 2 and counts["runs"] == len(before["runs"])
    assert {what for what, _, _ in records} == {"Copying", "Comparing"}
    assert move_store(url, str(again), silent) == counts
    for heir in (PostgresStore(url), SqliteStore(again)):
        assert await heir.open() > epoch
        assert await what_is_in(heir) == before
        assert await heir.verify() == []
        await heir.close()


@run_async
async def test_a_moved_store_goes_on(tmp_path: Path) -> None:
    file, url = tmp_path / "log.db", fresh()
    store = SqliteStore(file)
    world, root = await filled(store)
    last = (await store.load()).last_seq
    await store.close()
    move_store(str(file), url, silent)
    heir = PostgresStore(url)
    await heir.open()
    world.apply(root, MailReceived(mail=Mail(seq=0, text="more")))
    changes = world.take()
    assert await heir.commit(changes) == last + len(changes.entries)
    await heir.note(root, "k2", 2, Added(titles=("more",)))
    assert [one.key for one in await heir.task_list(root)] == ["k", "k2"]
    assert await heir.verify() == []
    await heir.close()


@run_async
async def test_a_target_that_is_not_empty_is_refused_and_stays(tmp_path: Path) -> None:
    file, url = tmp_path / "log.db", fresh()
    for store in (SqliteStore(file), PostgresStore(url)):
        await filled(store)
        await store.close()
    with pytest.raises(StoreError, match="not empty"):
        move_store(str(file), url, silent)
    there = tmp_path / "there.db"
    there.write_bytes(b"mine")
    with pytest.raises(StoreError, match="already exists"):
        move_store(url, str(there), silent)
    assert there.read_bytes() == b"mine"
    with pytest.raises(StoreError, match="does not exist"):
        move_store(str(tmp_path / "nothing.db"), fresh(), silent)


@run_async
async def test_a_store_in_use_is_not_moved(tmp_path: Path) -> None:
    file, url = SqliteStore(tmp_path / "log.db"), PostgresStore(fresh())
    for store in (file, url):
        await store.open()
    with pytest.raises(StoreLocked):
        move_store(file.path, fresh(), silent)
    with pytest.raises(StoreLocked):
        move_store(url.url, str(tmp_path / "to.db"), silent)
    for store in (file, url):
        await store.close()


@run_async
async def test_a_damaged_log_is_not_called_moved(tmp_path: Path) -> None:
    import apsw

    file, url = tmp_path / "log.db", fresh()
    store = SqliteStore(file)
    await filled(store)
    await store.close()
    db = apsw.Connection(str(file))
    db.execute("update events set at = at + 1 where seq = 3")
    db.close()
    with pytest.raises(StoreError, match="breaks the hash chain"):
        move_store(str(file), url, silent)
    with pytest.raises(StoreError, match="unfinished copy"):
        await PostgresStore(url).open()


KILLED = """
import sys
from retinue.host.migration import move_store

def moved(what, n_done, total):
    pass

import retinue.store.moving as moving
compare = moving._compare
def stop(*args):
    print("copied", flush=True)
    sys.stdin.read()
moving._compare = stop
move_store(sys.argv[1], sys.argv[2], moved)
"""


def _kill_in_the_middle(source: str, target: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, source, target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout and child.stdout.readline() == b"copied\n"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()


@run_async
async def test_a_move_that_was_killed_is_not_opened_and_can_be_done_again(tmp_path: Path) -> None:
    file, url, back = tmp_path / "log.db", fresh(), tmp_path / "back.db"
    store = SqliteStore(file)
    await filled(store)
    before = await what_is_in(store)
    await store.close()
    for source, target in ((str(file), url), (url, str(back))):
        _kill_in_the_middle(source, target)
        if target == url:
            with pytest.raises(StoreError, match="unfinished copy"):
                await PostgresStore(url).open()
        else:
            assert not back.exists()
        move_store(source, target, silent)
    for heir in (PostgresStore(url), SqliteStore(file), SqliteStore(back)):
        await heir.open()
        assert await what_is_in(heir) == before
        await heir.close()
    assert not [name for name in os.listdir(tmp_path) if "incomplete" in name]


def test_the_address_is_named_without_its_password() -> None:
    with pytest.raises(StoreError) as failure:
        move_store("postgresql://ada:s3cret@127.0.0.1:1/db", "x", silent)
    assert "s3cret" not in str(failure.value)
    with pytest.raises(StoreError):
        connect("postgresql://ada:s3cret@127.0.0.1:1/db")
