"""What has ended is forgotten in the background, oldest first; what is open or has something to
announce is not."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, ConfigError, Retention, Retinue
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.testing import MemoryStore, Scripted, VirtualClock, run_virtual
from retinue.tools.builtin.command_record import CommandRecord, CommandStart
from tests.contracts.store import run_async

KINDS = ("memory", "sqlite")


def worker() -> Agent:
    return Agent("worker", model=Scripted(lambda request: "done", name="worker"))


def store_of(kind: str, folder: Path) -> Any:
    return MemoryStore() if kind == "memory" else SqliteStore(folder / "log.db", inline=True)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_newest_are_kept(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        retention = Retention(count=3, every_seconds=10)
        async with Retinue(
            store_of(kind, tmp_path), clock=VirtualClock(), retention=retention
        ) as retinue:
            ids, agent = [], worker()
            for n in range(8):
                ids.append((await retinue.run(agent, f"task {n}")).id)
                await asyncio.sleep(0.1)
            await asyncio.sleep(11)
            assert [one.id async for one in retinue.runs()] == ids[:4:-1]
            assert await retinue.verify() == []

    run_virtual(main())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_too_old_goes_and_what_is_open_stays(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async def wait(request: Any) -> str:
            await asyncio.sleep(10_000)
            return "late"

        slow = Agent("slow", model=Scripted(wait, name="slow"))
        retention = Retention(age_seconds=100, every_seconds=10)
        async with Retinue(
            store_of(kind, tmp_path), clock=VirtualClock(), retention=retention
        ) as retinue:
            open_one, agent = await retinue.spawn(slow, "wait"), worker()
            old = (await retinue.run(agent, "old")).id
            await asyncio.sleep(60)
            young = (await retinue.run(agent, "young")).id
            assert len([r async for r in retinue.runs()]) == 3
            await asyncio.sleep(55)
            assert {one.id async for one in retinue.runs()} == {open_one, young}
            await asyncio.sleep(100)
            assert [one.id async for one in retinue.runs()] == [open_one]
            assert old not in str(await retinue._store.entries(tree=old))

    run_virtual(main())


@run_async
async def test_a_store_stays_within_its_size(tmp_path: Path) -> None:
    retention = Retention(size=600_000, every_seconds=0.05)
    text = iter(range(10_000))
    async with Retinue(tmp_path / "log.db", retention=retention) as retinue:
        agent = Agent(
            "worker", model=Scripted(lambda request: f"{next(text)} " + "x" * 30_000, name="worker")
        )
        for n in range(60):
            await retinue.run(agent, f"task {n}")
        for _ in range(100):
            await asyncio.sleep(0.1)
            if (await retinue._store.space()).used <= 600_000:
                break
        runs = [r async for r in retinue.runs()]
        assert 1 < len(runs) < 30
        assert [one.id for one in runs] == sorted((one.id for one in runs), reverse=True), (
            "the newest are left"
        )
        assert await retinue.verify() == []
        space = await retinue._store.space()
        assert space.data + space.holes < 2_000_000, "the WAL beside it has a bound of its own"


@run_async
async def test_nothing_is_forgotten_without_a_retention(tmp_path: Path) -> None:
    async with Retinue(tmp_path / "log.db") as retinue:
        await retinue.run(worker(), "task")
        assert retinue._keeping is None
        assert await retinue.tidy_up() == 0
        assert len([r async for r in retinue.runs()]) == 1


def test_a_retention_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError):
        Retinue(retention=Retention(count=-1))


@run_async
async def test_forgetting_takes_artifacts_and_the_records_of_commands_along(tmp_path: Path) -> None:
    async with Retinue(tmp_path / "log.db") as retinue:
        named = (await retinue._store.put_artifact(b"spilled")).sha256
        texts = iter((f"see {named}", "nothing", "nothing"))
        agent = Agent("worker", model=Scripted(lambda request: next(texts), name="worker"))
        last, old_run, rest = [(await retinue.run(agent, text)).id for text in ("x", "y", "z")]
        folder = tmp_path / "log.db.tools" / "shell"
        folder.mkdir(parents=True)
        for n, run in enumerate((old_run, rest, last)):
            CommandRecord(folder / f"spool{n}").create(
                CommandStart(run=run, command="true", at=1.0, tag="t")
            )
        await retinue.forget(old_run)
        assert sorted(os.listdir(folder)) == ["spool1", "spool2"]
        assert await retinue.artifact(named) == b"spilled"
        await retinue.forget(last)
        assert os.listdir(folder) == ["spool1"]
        assert not list((tmp_path / "log.db.artifacts").glob(f"*/{named}"))
        report = await retinue.compact()
        assert report.after.holes == 0 and not report.is_old
