"""A process ends or dies at any moment: sessions go on, and each is announced once, or its spawner
told once."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Limits, Origin, Outcome, Retinue, StoreError
from retinue.channels.webhook import Webhook
from retinue.models.base import ModelRequest
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.testing import MemoryStore, Scripted, call
from tests.api.scripted_agents import STORES, ended, on_virtual_time
from tests.channels.receiver import SECRET, Receiver, hang
from tests.contracts.world import run_async
from tests.families.sessions_world import CHAT, Chat, World, pause, spawn

ROOT = Path(__file__).resolve().parents[2]
both = pytest.mark.parametrize("kind", STORES)
YIELD = call("sessions_yield")


def in_store(world: World, kind: str, folder: Path) -> World:
    if kind == "sqlite":
        world.store = SqliteStore(folder / "log.db", inline=True)
    return world


def reborn(world: World) -> Retinue:
    """The next process on the same store."""
    world.store = world.store.survivor()
    return world.open()


class Mortal(MemoryStore):
    """The process dies at commit number `last`: just before it, or when it is kept and nothing has
    come of it yet."""

    def __init__(self, last: int, *, is_kept: bool) -> None:
        super().__init__()
        self.left, self.is_kept = last, is_kept
        self.dead = asyncio.Event()

    async def commit(self, changes: Any) -> int:
        if self.dead.is_set():
            raise StoreError("the process is dead")
        self.left -= 1
        if self.left > 0:
            return await super().commit(changes)
        if self.is_kept:
            await super().commit(changes)
        self.dead.set()
        await asyncio.Event().wait()
        raise AssertionError


async def die_once(world: World, last: int, *, is_kept: bool) -> tuple[str, bool]:
    """A run of the lead whose process dies at a commit; another takes its work up. Whether it died
    at all, too."""
    world.store = Mortal(last, is_kept=is_kept)
    store = world.store
    async with AsyncExitStack() as lives:
        retinue = await lives.enter_async_context(world.open())
        started = asyncio.ensure_future(retinue.spawn(world.lead, "Go.", key="one", origin=CHAT))
        over = asyncio.ensure_future(asyncio.sleep(1_000))
        dead = asyncio.ensure_future(store.dead.wait())
        await asyncio.wait([over, dead], return_when="FIRST_COMPLETED")
        died, store.left = store.dead.is_set(), 1_000
        for task in (started, over, dead):
            task.cancel()
        world.chat = Chat(by_key=world.chat.by_key)
        retinue = await lives.enter_async_context(reborn(world))
        run = await retinue.spawn(world.lead, "Go.", key="one", origin=CHAT)
        await ended(retinue, run)
        await asyncio.sleep(1_000)
        assert [d async for d in retinue.deliveries(state=["pending", "sent", "dead"])] == []
    return run, died


@pytest.mark.parametrize("is_kept", [True, False])
@on_virtual_time
async def test_a_death_at_any_commit_leaves_each_session_announced_once_and_then_deleted(
    is_kept: bool,
) -> None:
    last, died = 0, True
    while died:
        last += 1
        world = World([spawn("after 5 say a"), spawn("after 5 say b", cleanup="keep")])
        run, died = await die_once(world, last, is_kept=is_kept)
        assert sorted(world.chat.texts) == ["I after 5 say a", "I after 5 say b"], last
        assert [s.request.task[-1] for s, _ in await world.rows(run)] == ["b"], last
    assert last > 10


@pytest.mark.parametrize("is_kept", [True, False])
@on_virtual_time
async def test_a_death_at_any_commit_leaves_a_skipped_session_unannounced(is_kept: bool) -> None:
    last, died = 0, True
    while died:
        last += 1
        world = World(
            spawn("after 5 say a"), pause(50, "done"), announces={"after 5 say a": "ANNOUNCE_SKIP"}
        )
        _, died = await die_once(world, last, is_kept=is_kept)
        assert world.chat.texts == [], last
    assert last > 6


@pytest.mark.parametrize("is_kept", [True, False])
@on_virtual_time
async def test_a_death_at_any_commit_does_not_lose_the_reply_that_is_waited_for(
    is_kept: bool,
) -> None:
    last, died = 0, True
    while died:
        last += 1
        world = World(spawn("after 5 say found it", timeoutSeconds=60))
        _, died = await die_once(world, last, is_kept=is_kept)
        assert (world.results[0]["status"], world.results[0]["reply"]) == ("ok", "found it"), last
        assert world.chat.texts == ["I after 5 say found it"], last
    assert last > 6


@pytest.mark.parametrize("is_kept", [True, False])
@on_virtual_time
async def test_a_death_at_any_commit_does_not_lose_the_news_that_wakes_a_yielding_run(
    is_kept: bool,
) -> None:
    """Root and child, in a lane of one: each is told once."""
    last, died = 0, True
    while died:
        last += 1
        below = [spawn("after 5 say leaf"), YIELD, "led"]
        world = World(
            spawn("lead them"),
            YIELD,
            does={"lead them": below},
            profile="openclaw",
            max_spawn_depth=2,
            max_concurrent=1,
        )
        _, died = await die_once(world, last, is_kept=is_kept)
        assert [e["result"] for e in world.events] == ["led"], last
        texts = [m.text for m in world.of("lead them")[-1].messages if "result:\nleaf" in m.text]
        assert len(texts) == 1, last
    assert last > 10


@both
@on_virtual_time
async def test_sessions_that_waited_for_the_lane_go_on_one_after_the_other(
    kind: str, tmp_path: Path
) -> None:
    world = in_store(World([spawn(f"after 10 say {n}") for n in range(4)]), kind, tmp_path)
    async with world.open() as retinue:
        await retinue.run(world.lead, "Go.", origin=CHAT)
        await asyncio.sleep(15)
    async with reborn(world):
        await asyncio.sleep(1_000)
    assert world.chat.texts == [f"I after 10 say {n}" for n in range(4)]
    assert world.chat.at == [10, 25, 35, 45]
    assert world.most == 1


@both
@on_virtual_time
async def test_a_limit_of_children_counts_those_of_an_earlier_process(
    kind: str, tmp_path: Path
) -> None:
    lines = [spawn("after 500 say a"), spawn("after 500 say b")], pause(50, spawn("say c"))
    world = in_store(World(*lines, max_children_per_agent=2), kind, tmp_path)
    async with world.open() as retinue:
        run = await retinue.spawn(world.lead, "Go.", origin=CHAT)
        await asyncio.sleep(10)
    async with reborn(world) as retinue:
        await ended(retinue, run)
    assert world.results[-1]["error"] == "too many active children (2/2); wait for one to end"


@both
@on_virtual_time
async def test_a_session_of_an_earlier_process_can_be_listed_read_and_written_to(
    kind: str, tmp_path: Path
) -> None:
    def later(request: ModelRequest) -> Any:
        return call("sessions_send", label="dig", message="say two")

    lines = spawn("say one", label="dig"), pause(50, later), pause(5, call("sessions_list"))
    world = in_store(World(*lines, profile="openclaw"), kind, tmp_path)
    async with world.open() as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(10)
    async with reborn(world) as retinue:
        await ended(retinue, run)
    assert [e["result"] for e in world.events] == ["one", "two"]
    assert "one" in [m.text for m in world.of("say two")[0].messages]
    assert len(world.results[-1]["sessions"]) == 2


@both
@pytest.mark.parametrize("hears", [True, False])
@on_virtual_time
async def test_a_death_between_an_end_and_its_announcement_makes_one_delivery(
    kind: str, hears: bool, tmp_path: Path
) -> None:
    """The chat has taken it or not; nobody knows, so it is sent again with the same key."""
    world = in_store(World(spawn("after 5 say a")), kind, tmp_path)
    first = world.chat = Chat(hangs=hears, refuses=not hears)
    async with AsyncExitStack() as dead:
        retinue = await dead.enter_async_context(world.open())
        run: Outcome = await retinue.run(world.lead, "Go.", origin=CHAT)
        await asyncio.sleep(6)
        assert len(await world.rows(run.id)) == 1
        world.chat = Chat(by_key=first.by_key)
        await dead.enter_async_context(reborn(world))
        await asyncio.sleep(1_000)
        assert world.chat.texts == ["I after 5 say a"]
        assert world.chat.repeated == hears
        assert await world.rows(run.id) == []


# a real process, a real signal


def program() -> Agent:
    """Its child is announced to a webhook."""

    def script(request: ModelRequest) -> Any:
        if request.purpose == "announce":
            return "I have built it"
        if request.path != "0":
            return "built"
        return "started" if request.turn else call("sessions_spawn", task="build it")

    return Agent("lead", model=Scripted(script, name="m"), families=["clawdbot"])


async def main(store: str, url: str) -> None:
    hook, lead = Webhook(url, SECRET), program()
    async with Retinue(
        Path(store), agents=[lead], channels={"hook": hook}, limits=Limits(delivery_base_ms=50)
    ) as retinue:
        run = await retinue.spawn(lead, "Go.", key="one", origin=Origin(channel="hook", user="ada"))
        await retinue.wait(run)
        for _ in range(2_000):
            run_ids = [r.id async for r in retinue.runs(children=True)]
            if run_ids == [run]:
                break
            await asyncio.sleep(0.01)
    sys.stdout.write("announced and deleted" if run_ids == [run] else "not deleted")


async def process(store: Path, url: str) -> Process:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.families.test_sessions_restart",
        str(store),
        url,
    ]
    return await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "PYTHONPATH": path}, stdout=PIPE
    )


@pytest.mark.parametrize("moment", ["before", "after"])
@run_async
async def test_a_killed_process_announces_its_session_once_and_deletes_it_then(
    moment: str, tmp_path: Path
) -> None:
    """The announcement is with the receiver, which has taken it or not, and has not answered."""
    reached = asyncio.Event()

    async def stall() -> None:
        reached.set()
        await hang()

    async with Receiver() as receiver:
        setattr(receiver, moment, stall)
        first = await process(tmp_path / "log.db", receiver.url)
        await asyncio.wait_for(reached.wait(), 25)
        first.kill()
        await first.communicate()
        assert first.returncode == -9
        setattr(receiver, moment, None)
        second = await process(tmp_path / "log.db", receiver.url)
        output, _ = await asyncio.wait_for(second.communicate(), 25)
        assert (second.returncode, output) == (0, b"announced and deleted")
        assert receiver.texts == ["I have built it"]
        assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
