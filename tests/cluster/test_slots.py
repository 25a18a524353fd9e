"""Slots of lanes that all nodes share: what a run wants of a lane is on record with its step, and
none is lost or given twice, whoever dies or is slow."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from retinue import Agent, Lane, tool
from retinue.cluster.ownership import Held
from retinue.cluster.slots import Slots, statements
from retinue.cluster.tree_worker import WorkerSettings
from retinue.core.effects import AskSlot, FreeSlot
from retinue.testing import Scripted, call
from tests import postgres
from tests.cluster.test_nodes import run
from tests.cluster.workload import agents, node, rows

NARROW = Lane(name="narrow", size=2)
HASTY = WorkerSettings(at_once=4, lease_seconds=5.0, idle_seconds=0.05)


async def written(url: str, root: str, *effects: AskSlot | FreeSlot) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        for sql, args in statements(root, effects):
            await connection.execute(sql, args)


def test_a_slot_that_is_given_back_and_asked_for_in_one_commit_is_queued_for() -> None:
    async def test() -> None:
        url = postgres.fresh()
        async with node(url, settings=None) as one:
            give, now = one._slots._grant, "select run, held, ticket from lane_slots order by n"
            asks = [AskSlot(run=f"r{n}", lane=NARROW, ticket=n) for n in range(3)]
            await written(url, "t", *asks)
            await give("narrow")
            assert await rows(url, now) == [("r0", True, 0), ("r1", True, 1), ("r2", False, 2)]
            back = AskSlot(run="r0", lane=NARROW, ticket=7)
            await written(url, "t", FreeSlot(run="r0", lane=NARROW), back)
            await give("narrow")
            assert await rows(url, now) == [("r1", True, 1), ("r2", True, 2), ("r0", False, 7)]
            # Who asks again, after it was taken over, keeps what it has and is told anew.
            await rows(url, "update lane_slots set told = true returning 1")
            await written(url, "t", AskSlot(run="r1", lane=NARROW, ticket=9))
            assert await rows(
                url, "select ticket, held, told from lane_slots where run = 'r1'"
            ) == [(9, True, False)]

    run(test())


def test_many_parents_finish_while_slots_are_given_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees are let go of in the meantime, and taken by other nodes."""
    grant, n = Slots._grant, 0

    async def late(self: Slots, lane: str) -> None:
        nonlocal n
        n += 1
        await asyncio.sleep(0.3 * (n % 3 == 0))
        await grant(self, lane)

    monkeypatch.setattr(Slots, "_grant", late)

    async def test() -> None:
        url, own = postgres.fresh(), agents(children=1)
        lane = (Lane(name="four", size=4),)
        async with (
            node(url, agents=own, settings=HASTY) as one,
            node(url, agents=agents(children=1), settings=HASTY),
        ):
            outs = await asyncio.gather(
                *(one.run(own[0], f"task {i}", lanes=lane) for i in range(12))
            )
            assert {out.state for out in outs} == {"completed"}
        assert await rows(url, "select count(*) from lane_slots") == [(0,)]

    run(test())


def test_what_one_worker_leaves_undone_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies between a commit and the grant."""
    work = Slots.work
    dead: list[Slots] = []

    async def unless_dead(self: Slots) -> None:
        if self in dead:
            await asyncio.sleep(3600)
        await work(self)

    monkeypatch.setattr(Slots, "work", unless_dead)

    async def test() -> None:
        url, own = postgres.fresh(), agents(children=1)
        async with node(url, agents=own, settings=None) as asking:
            one = node(url, agents=agents(children=1))
            other = Agent("other", "Know no lead.", model=Scripted(["-"], name="other"))
            async with one as driving, node(url, agents=[other]):
                dead.append(driving._slots)
                assert driving.worker is not None
                for task in driving.worker._tasks:
                    if task.get_name() == "retinue lanes":
                        task.cancel()
                out = await asking.run(own[0], "do it", lanes=(NARROW,))
                assert out.state == "completed"

    run(test())


def test_the_rows_of_a_tree_are_made_what_its_runs_hold() -> None:
    async def test() -> None:
        url = postgres.fresh()
        async with node(url, settings=None) as one:
            await rows(
                url,
                "insert into trees (root, chain, is_open, epoch) values ('t', '', true, 4)"
                " returning 1",
            )
            await written(url, "t", AskSlot(run="gone", lane=NARROW, ticket=1))
            await one._slots.keep(Held("t", 3, True), [])
            assert len(await rows(url, "select 1 from lane_slots")) == 1, "an epoch of the past"
            await one._slots.keep(Held("t", 4, True), [("r", "narrow", 2, True)])
            assert await rows(url, "select run, held from lane_slots") == [("r", True)]
            await rows(url, "update trees set is_open = false returning 1")
            await one._slots.sweep()
            assert await rows(url, "select 1 from lane_slots") == []

    run(test())


def test_a_lane_is_never_exceeded_while_its_runs_come_back_and_are_cancelled() -> None:
    at_work: dict[str, int] = {"now": 0, "most": 0}

    @tool(restart="pure")
    async def work() -> str:
        """Work."""
        at_work["now"] += 1
        at_work["most"] = max(at_work["most"], at_work["now"])
        try:
            await asyncio.sleep(0.02)
        finally:
            at_work["now"] -= 1
        return "worked"

    def agent() -> Agent[Any, Any]:
        model = Scripted([call("work"), call("work"), "done"], name="m")
        return Agent("narrow", "Work.", model=model, tools=[work])

    async def test() -> None:
        url, own = postgres.fresh(), agent()
        async with (
            node(url, agents=[own], settings=HASTY) as one,
            node(url, agents=[agent()], settings=HASTY),
        ):
            ids = [await one.spawn(own, f"task {n}", lanes=(NARROW,)) for n in range(16)]
            await asyncio.gather(*(one.cancel(id, "no") for id in ids[::3]))
            outs = await asyncio.gather(*(one.wait(id) for id in ids))
            assert {out.state for out in outs} <= {"completed", "cancelled"}
            assert sum(out.state == "completed" for out in outs) >= 10
        assert at_work["most"] <= 2
        assert await rows(url, "select count(*) from lane_slots") == [(0,)]

    run(test())


def test_a_tenant_with_many_runs_does_not_keep_another_from_its_turn() -> None:
    async def test() -> None:
        url = postgres.fresh()
        async with node(url, settings=None) as one:
            give = one._slots._grant
            for root, tenant in (("a", "ada"), ("b", "bob")):
                await rows(
                    url,
                    "insert into trees (root, chain, tenant) values (%s, '', %s) returning 1",
                    root,
                    tenant,
                )
            asks = [AskSlot(run=f"a{n}", lane=NARROW, ticket=n) for n in range(9)]
            await written(url, "a", *asks)
            await give("narrow")
            for run in ("b0", "b1"):
                await written(url, "b", AskSlot(run=run, lane=NARROW, ticket=1))
            values = []
            for run in ("a0", "a1", "b0", "a2"):
                await written(url, "a", FreeSlot(run=run, lane=NARROW))
                await give("narrow")
                values += await rows(url, "select run from lane_slots where held order by run")
            # One slot for each while both have runs; all for the other afterwards.
            assert values == [
                *(("a1",), ("b0",)),
                *(("a2",), ("b0",)),
                *(("a2",), ("b1",)),
                *(("a3",), ("b1",)),
            ]

    run(test())
