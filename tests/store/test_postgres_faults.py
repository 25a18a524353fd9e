"""What goes wrong with a database: each fault is a `StoreError` that says what was kept, and what
was acknowledged is there afterwards, once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from retinue.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreUnreachable,
)
from retinue.store.postgres import connections, postgres_rows, postgres_writer
from retinue.store.postgres.connections import connect
from retinue.store.postgres.postgres_store import PostgresStore
from tests.contracts.world import World, run_async, texts
from tests.postgres import PostgresServer, fresh, own_server


@pytest.fixture(scope="module")
def killable() -> Iterator[PostgresServer]:
    with own_server() as server:
        yield server


async def opened(url: str) -> tuple[PostgresStore, World, str]:
    store, world = PostgresStore(url), World()
    await store.open()
    root = world.start()
    await store.commit(world.take())
    return store, world, root


def cut_backends(url: str) -> None:
    """As a network that goes away, seen from the server."""
    with connect(url) as db:
        db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name like 'retinue %' and pid in "
            "(select pid from pg_locks where locktype = 'advisory' and "
            "(classid::bigint << 32 | objid::bigint) = "
            "hashtextextended('retinue store ' || current_schema(), 0))"
        )


async def until_saved(store: PostgresStore, changes: Any) -> int:
    """As the runtime does it."""
    while True:
        try:
            return await store.commit(changes)
        except StoreFull:
            await asyncio.sleep(0.05)


@run_async
async def test_a_cut_connection_is_made_anew_and_the_batch_is_kept() -> None:
    url = fresh()
    store, world, root = await opened(url)
    cut_backends(url)
    world.call(root, "read")
    changes = world.take()
    with pytest.raises(StoreUnreachable, match=r"not saved yet.*Earlier data is safe"):
        await store.commit(changes)
    assert len(await store.messages(root)) == 1
    await store.commit(changes)
    assert texts(await store.messages(root)) == ["Do it.", "Working."]
    assert await store.verify() == []
    await store.close()


@run_async
async def test_a_commit_whose_answer_was_lost_is_not_written_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import psycopg

    store, world, root = await opened(url := fresh())
    run, n_cut = postgres_writer._Attempt.run, 0

    def cut_after(self: Any, db: Any) -> None:
        nonlocal n_cut
        run(self, db)
        n_cut += 1
        if n_cut == 1:
            db.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(postgres_writer._Attempt, "run", cut_after)
    world.call(root, "read")
    changes = world.take()
    last = await store.commit(changes)
    assert n_cut == 1
    assert texts(await store.messages(root)) == ["Do it.", "Working."]
    assert [n for n, _ in await store.entries()][-1] == last
    world.result(root)
    assert await store.commit(world.take()) > last
    assert await store.verify() == []
    await store.close()
    assert url


@run_async
async def test_a_server_that_was_killed_in_mid_commit_has_each_batch_once(
    killable: PostgresServer,
) -> None:
    store, world, root = await opened(fresh(killable))
    saved = asyncio.Event()

    async def work() -> None:
        for n in range(60):
            world.call(root, "read")
            world.result(root, text=f"{n}")
            await until_saved(store, world.take())
            if n == 10:
                saved.set()

    working = asyncio.ensure_future(work())
    await saved.wait()
    for _ in range(2):
        await asyncio.to_thread(killable.kill)
        await asyncio.to_thread(killable.start)
        await asyncio.sleep(0.05)
    await working
    results = [m.text for m in await store.messages(root) if m.text.isdigit()]
    assert results == [f"{n}" for n in range(60)]
    assert await store.verify() == []
    await store.close()


@run_async
@pytest.mark.parametrize("others", [0, 20])
async def test_a_batch_that_a_killed_server_has_forgotten_is_written_again(
    killable: PostgresServer, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """The number of its transaction is unknown after the crash, or was given to another one, which
    was committed."""
    store, world, root = await opened(url := fresh(killable))
    write, n_writes = postgres_rows.write, 0

    def kill_after(db: Any, *args: Any) -> Any:
        nonlocal n_writes
        result = write(db, *args)
        n_writes += 1
        if n_writes == 1:
            killable.kill()
            killable.start()
            with connect(url) as other:
                for _ in range(others):
                    other.execute("select pg_current_xact_id()")
        return result

    monkeypatch.setattr(postgres_writer, "write", kill_after)
    world.call(root, "read")
    await until_saved(store, world.take())
    assert n_writes == 2
    assert texts(await store.messages(root)) == ["Do it.", "Working."]
    assert await store.verify() == []
    await store.close()


@run_async
@pytest.mark.parametrize("code", ["57P01", "42501", ""])
async def test_what_became_of_a_batch_is_asked_until_the_server_says_it(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """A server that stops while it is asked has said nothing: the batch is there."""
    import psycopg

    store, world, root = await opened(fresh())
    run, is_last, n_asked = postgres_writer._Attempt.run, postgres_writer.PostgresWriter._is_last, 0

    def cut_after(self: Any, db: Any) -> None:
        run(self, db)
        db.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def ask(self: Any, attempt: Any) -> bool:
        nonlocal n_asked
        n_asked += 1
        if n_asked < 3:
            raise psycopg.errors.lookup(code)("no") if code else psycopg.OperationalError("no")
        return is_last(self, attempt)

    monkeypatch.setattr(postgres_writer._Attempt, "run", cut_after)
    monkeypatch.setattr(postgres_writer.PostgresWriter, "_is_last", ask)
    world.call(root, "read")
    await store.commit(world.take())
    assert n_asked == 3
    assert texts(await store.messages(root)) == ["Do it.", "Working."]
    await store.close()


@run_async
async def test_a_transaction_that_is_still_under_way_is_ended_before_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server may not know yet that our connection is gone: it must not commit later."""
    import psycopg

    store, world, root = await opened(fresh())
    run, n_runs = postgres_writer._Attempt.run, 0
    losses: list[Any] = []

    def leave_open(self: Any, db: Any) -> None:
        nonlocal n_runs
        n_runs += 1
        if n_runs > 1:
            return run(self, db)
        losses.append(other := connect(store.database.url))
        other.execute("begin")
        (number,) = other.execute(
            postgres_writer._LEAVE_NUMBER, (self._writer, self.n)
        ).fetchone() or ("",)
        self.number, self.backend = number, other.info.backend_pid
        db.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(postgres_writer._Attempt, "run", leave_open)
    world.call(root, "read")
    await until_saved(store, world.take())
    assert n_runs == 2
    with pytest.raises(psycopg.OperationalError):
        losses[0].execute("commit")
    assert texts(await store.messages(root)) == ["Do it.", "Working."]
    await store.close()


@run_async
async def test_readers_wait_for_a_server_that_starts_again(killable: PostgresServer) -> None:
    store, _, root = await opened(fresh(killable))
    assert await store.row(root)
    await asyncio.to_thread(killable.stop)
    reading = asyncio.ensure_future(store.row(root))
    await asyncio.sleep(0.1)
    assert not reading.done()
    await asyncio.to_thread(killable.start)
    row = await reading
    assert row is not None and row.spec.id == root
    await store.close()


@run_async
async def test_a_server_that_stays_away_is_named(
    killable: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, world, root = await opened(fresh(killable))
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.1)
    await asyncio.to_thread(killable.stop)
    try:
        with pytest.raises(StoreUnreachable, match="Check that the server runs"):
            await store.row(root)
        world.call(root, "read")
        changes = world.take()
        for _ in range(2):
            with pytest.raises(StoreUnreachable, match="not saved yet"):
                await store.commit(changes)
    finally:
        await asyncio.to_thread(killable.start)
    await store.commit(changes)
    assert len(await store.messages(root)) == 2
    await store.close()


@run_async
async def test_a_statement_that_takes_too_long_is_tried_again() -> None:
    url = fresh()
    store, world, root = await opened(url)
    await store.database.alone(lambda db: db.execute("set statement_timeout = 100"))
    other = connect(url)
    with other.transaction():
        other.execute("select 1 from trees where root = %s for update", (root,))
        world.call(root, "read")
        changes = world.take()
        with pytest.raises(StoreUnreachable, match=r"timeout.*not saved yet"):
            await store.commit(changes)
    other.close()
    await store.commit(changes)
    assert len(await store.messages(root)) == 2
    await store.close()


@run_async
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("53100", StoreFull),
        ("53200", StoreFull),
        ("25006", StoreUnreachable),
        ("57P01", StoreUnreachable),
        ("XX001", StoreCorrupt),
        ("23514", StoreError),
    ],
)
async def test_each_refusal_of_the_server_has_its_kind(code: str, kind: type[StoreError]) -> None:
    url = fresh()
    store, world, root = await opened(url)
    with connect(url) as db:
        db.execute(
            f"create function full_disk() returns trigger language plpgsql as "
            f"$$ begin raise exception 'planted' using errcode = '{code}'; end $$;"
            "create trigger planted before insert on events execute function full_disk()"
        )
    world.call(root, "read")
    changes = world.take()
    with pytest.raises(StoreError) as failure:
        await store.commit(changes)
    assert type(failure.value) is kind and "planted" in str(failure.value)
    with connect(url) as db:
        db.execute("drop trigger planted on events")
    await store.commit(changes)
    assert len(await store.messages(root)) == 2
    assert await store.verify() == []
    await store.close()


@run_async
async def test_a_store_that_is_closed_does_not_wait_for_a_server_that_is_away(
    killable: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, world, root = await opened(fresh(killable))
    run = postgres_writer._Attempt.run

    def cut_after(self: Any, db: Any) -> None:
        run(self, db)
        killable.kill()
        db.execute("select 1")

    monkeypatch.setattr(postgres_writer._Attempt, "run", cut_after)
    world.call(root, "read")
    commit = asyncio.ensure_future(store.commit(world.take()))
    try:
        await asyncio.sleep(0.3)
        assert not commit.done()
        await asyncio.wait_for(store.close(), 120)
        with pytest.raises(StoreUnreachable):
            await commit
    finally:
        await asyncio.to_thread(killable.start)


HOLDER = """
import asyncio, sys
from retinue.store.postgres.postgres_store import PostgresStore

async def main():
    await PostgresStore(sys.argv[1]).open()
    print("open", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@run_async
async def test_a_store_whose_process_was_killed_opens_at_once() -> None:
    url = fresh()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, url, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None and await child.stdout.readline() == b"open\n"
    with pytest.raises(StoreLocked, match=f"process {child.pid} on"):
        await PostgresStore(url).open()
    child.kill()
    await child.wait()
    store = PostgresStore(url)
    assert await store.open() > 1
    await store.close()


@run_async
async def test_damage_is_named_by_its_row() -> None:
    url = fresh()
    store, _, root = await opened(url)
    with connect(url) as db:
        db.execute("update events set at = at + 1 where root = %s and number = 1", (root,))
        db.execute("delete from events where root = '' and number = 1")
    wrong = await store.verify()
    assert len(wrong) == 2
    assert f"Event 1 of tree {root} breaks the hash chain" in wrong[1]
    assert "missing from the log" in wrong[0]
    await store.close()
