"""Nodes on one database: what is started at any of them runs anywhere, once, and is reached from
everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from retinue import Agent, Lane, NotFound, Refused, tool
from retinue.cluster.tree_worker import WorkerSettings
from retinue.core.state import Ended
from retinue.testing import Scripted, call
from tests import postgres
from tests.cluster.workload import QUICK, agents, node, rows
from tests.waiting import SECONDS


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await test

    asyncio.run(bounded())


async def until(check: Any, seconds: float = SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if await check():
                return
            await asyncio.sleep(0.05)


def test_a_run_is_driven_to_its_end() -> None:
    async def test() -> None:
        url = postgres.fresh()
        own = agents()
        async with node(url, agents=own) as one:
            out = await one.run(own[0], "do it")
            assert (out.state, out.text, len(out.children)) == ("completed", "all done", 5)
            assert {child.state for child in out.children} == {"completed"}
        assert await rows(url, "select count(*) from trees where is_open or owner is not null") == [
            (0,)
        ]
        assert await rows(url, "select count(*) from inbox") == [(0,)]
        assert await rows(url, "select count(*) from workers") == [(0,)]

    run(test())


def test_a_run_started_where_no_worker_is_runs_on_another_node() -> None:
    async def test() -> None:
        url, own = postgres.fresh(), agents()
        async with node(url, settings=None, agents=own) as asking, node(url):
            out = await asking.run(own[0], "do it")
            assert (out.state, out.text) == ("completed", "all done")
            assert [r.state async for r in asking.runs()] == ["completed"]

    run(test())


def test_many_runs_are_spread_over_the_nodes_and_none_is_taken_from_its_owner() -> None:
    async def test() -> None:
        url, own = postgres.fresh(), agents(seconds=0.05)
        async with (
            node(url, agents=own) as one,
            node(url, agents=agents(seconds=0.05)),
            node(url, agents=agents(seconds=0.05)),
        ):
            owners: set[str] = set()

            async def watch() -> None:
                while True:
                    for (owner,) in await rows(
                        url, "select distinct owner::text from trees where owner is not null"
                    ):
                        owners.add(owner)
                    await asyncio.sleep(0.02)

            watching = asyncio.create_task(watch())
            outs = await asyncio.gather(*(one.run(own[0], f"task {n}") for n in range(30)))
            watching.cancel()
            assert {out.state for out in outs} == {"completed"}
            assert len(owners) == 3
        assert await rows(url, "select count(*) from takeovers") == [(0,)]
        assert await rows(
            url,
            "select count(*) from (select root, max(number) - count(*) from events"
            " group by root having max(number) <> count(*)) gaps",
        ) == [(0,)]

    run(test())


def waiting_agent() -> Agent[Any, Any]:
    return Agent("slow", "Think.", model=Scripted(["late"], name="slow", delay=30 * SECONDS))


def test_cancel_reaches_a_run_on_another_node_while_its_model_is_at_work() -> None:
    async def test() -> None:
        url, slow = postgres.fresh(), waiting_agent()
        async with (
            node(url, settings=None, agents=[slow]) as asking,
            node(url, agents=[waiting_agent()]),
        ):
            id = await asking.spawn(slow, "think")
            await asyncio.sleep(0.3)
            out = await asking.cancel(id, "enough")
            assert (out.state, out.by) == ("cancelled", "user")
            again = await asking.cancel(id, "twice")
            assert again.state == "cancelled"

    run(test())


def asking_agent() -> Agent[Any, Any]:
    model = Scripted([call("ask", question="Which color?"), "painted"], name="p")
    return Agent("painter", "Paint.", model=model, tools=["ask"])


def test_a_tree_that_waits_for_a_person_sleeps_and_continues_on_another_node() -> None:
    async def test() -> None:
        url, painter = postgres.fresh(), asking_agent()
        async with node(url, settings=None, agents=[painter]) as asking:
            async with node(url, agents=[asking_agent()]):
                id = await asking.spawn(painter, "paint it")

                async def sleeps() -> bool:
                    return await rows(
                        url,
                        "select owner is null and wake_at is not null and is_open and"
                        " exists(select 1 from runs where open) from trees"
                        " where root = %s",
                        id,
                    ) == [(True,)] and bool(await asking.open_questions(id))

                await until(sleeps)
            (question,) = await asking.open_questions()
            assert question.text == "Which color?"
            async with node(url, agents=[asking_agent()]):
                await asking.answer(question.id, "red")
                out = await asking.wait(id)
                assert (out.state, out.text) == ("completed", "painted")
            row = await asking.record(id)
            assert isinstance(row.run.state, Ended)
            assert row.run.restarts == 0, "to sleep and to wake is no restart"

    run(test())


def test_a_message_reaches_a_run_on_another_node_and_an_ended_one_refuses_it() -> None:
    async def test() -> None:
        url = postgres.fresh()
        records: list[str] = []

        def reply(request: Any) -> Any:
            records[:] = [m.text for m in request.messages]
            return "done" if "hurry" in records else call("pause")

        @tool(restart="pure")
        async def pause() -> str:
            """Wait a little."""
            await asyncio.sleep(0.05)
            return "paused"

        def agent() -> Agent[Any, Any]:
            return Agent("loop", "Loop.", model=Scripted(reply, name="loop"), tools=[pause])

        own = agent()
        async with node(url, settings=None, agents=[own]) as asking, node(url, agents=[agent()]):
            id = await asking.spawn(own, "wait for me")
            await asking.send(id, "hurry")
            out = await asking.wait(id)
            assert out.state == "completed" and records.count("hurry") == 1
            with pytest.raises(Refused):
                await asking.send(id, "too late")
            with pytest.raises(NotFound):
                await asking.send("nothing", "hello")

    run(test())


def test_the_same_key_starts_one_run_from_two_nodes() -> None:
    async def test() -> None:
        url, own, others = postgres.fresh(), agents(), agents()
        async with node(url, agents=own) as one, node(url, agents=others) as two:
            ids = await asyncio.gather(
                *(one.spawn(own[0], "once", key="k") for _ in range(3)),
                *(two.spawn(others[0], "once", key="k") for _ in range(3)),
            )
            assert len(set(ids)) == 1
            assert (await two.wait(ids[0])).state == "completed"
        assert await rows(url, "select count(*) from runs where parent = ''") == [(1,)]

    run(test())


def test_a_shared_lane_holds_over_all_nodes() -> None:
    at_work: dict[str, int] = {"now": 0, "most": 0}

    @tool(restart="pure")
    async def work() -> str:
        """Work."""
        at_work["now"] += 1
        at_work["most"] = max(at_work["most"], at_work["now"])
        await asyncio.sleep(0.05)
        at_work["now"] -= 1
        return "worked"

    def agent() -> Agent[Any, Any]:
        model = Scripted([call("work"), "done"], name="m")
        return Agent("narrow", "Work.", model=model, tools=[work])

    async def test() -> None:
        url, own = postgres.fresh(), agent()
        lane = (Lane(name="two", size=2),)
        async with node(url, agents=[own]) as one, node(url, agents=[agent()]):
            outs = await asyncio.gather(*(one.run(own, f"task {n}", lanes=lane) for n in range(12)))
            assert {out.state for out in outs} == {"completed"}
        assert at_work["most"] == 2
        assert await rows(url, "select count(*) from lane_slots") == [(0,)]

    run(test())


def test_sixty_parents_that_wait_on_thirty_slots_finish() -> None:
    async def test() -> None:
        url = postgres.fresh()
        few = WorkerSettings(at_once=10, lease_seconds=5.0, idle_seconds=0.2)
        lane = (Lane(name="thirty", size=30),)

        def team() -> list[Agent[Any, Any]]:
            return agents(children=1)

        own = team()
        async with (
            node(url, agents=own, settings=few) as one,
            node(url, agents=team(), settings=few),
            node(url, agents=team(), settings=few),
        ):
            outs = await asyncio.gather(
                *(one.run(own[0], f"task {n}", lanes=lane) for n in range(60))
            )
            assert {out.state for out in outs} == {"completed"}

    run(test())


def test_a_run_whose_agent_a_worker_does_not_know_waits_for_one_that_does() -> None:
    async def test() -> None:
        url, own = postgres.fresh(), waiting_agent()
        quick = Agent("slow", "Think.", model=Scripted(["now"], name="slow"))
        async with node(url, settings=None, agents=[own]) as asking, node(url):
            starting = asyncio.create_task(asking.run(own, "think"))
            await asyncio.sleep(1.0)
            assert await rows(
                url, "select owner is null and epoch = 0 from trees where is_open"
            ) == [(True,)]
            async with node(url, agents=[quick], settings=QUICK):
                assert (await starting).text == "now"

    run(test())


def test_trees_that_no_worker_can_drive_do_not_stand_in_the_way_of_others() -> None:
    async def test() -> None:
        url, own, strange = postgres.fresh(), agents(), waiting_agent()
        few = WorkerSettings(at_once=2, lease_seconds=5.0, idle_seconds=0.2)
        async with node(url, settings=None, agents=[strange, *own]) as asking:
            unknown = [asyncio.create_task(asking.spawn(strange, f"{n}")) for n in range(30)]
            await asyncio.sleep(0.5)
            async with node(url, settings=few):
                out = await asking.run(own[0], "do it")
                assert out.state == "completed"
            for task in unknown:
                task.cancel()
            await asyncio.gather(*unknown, return_exceptions=True)

    run(test())


def test_trees_of_a_dead_worker_are_taken_by_those_who_have_room() -> None:
    def slow() -> Agent[Any, Any]:
        return Agent("slow", "Think.", model=Scripted(["late"], name="slow", delay=6.0))

    async def test() -> None:
        url, own = postgres.fresh(), slow()
        few = WorkerSettings(at_once=4, lease_seconds=2.0, idle_seconds=0.2)
        async with (
            node(url, settings=None, agents=[own]) as asking,
            node(url, agents=[slow()], settings=few) as dying,
            node(url, agents=[slow()], settings=few) as one,
            node(url, agents=[slow()], settings=few) as other,
        ):
            ids = [await asking.spawn(own, f"{n}") for n in range(8)]

            async def all_at_work() -> bool:
                return await rows(
                    url, "select count(*) from trees where is_open and owner is not null"
                ) == [(8,)]

            await until(all_at_work)
            by_owner = "select count(*) from trees where owner is not null group by owner"
            assert len(await rows(url, by_owner)) >= 2, "no worker took everything"
            assert dying.worker is not None
            dying.worker.heartbeat._stop.set()
            for task in dying.worker._tasks:
                task.cancel()
            outs = await asyncio.gather(*(asking.wait(id) for id in ids))
            assert {out.state for out in outs} == {"completed"}
            takeovers = await rows(
                url, "select owner::text, count(*) from takeovers group by owner"
            )
            assert {owner for owner, _ in takeovers} <= {one.id, other.id}
            assert all(n <= 4 for _, n in takeovers)

    run(test())
