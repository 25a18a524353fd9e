"""Runs that need something of their machine are driven where it is, and say what they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue import Actions, Agent, Context, tool
from retinue.cluster.base import Dispatcher
from retinue.cluster.in_database import InDatabase
from retinue.cluster.procrastinate_jobs import ProcrastinateJobs
from retinue.cluster.status import cluster_status
from retinue.cluster.tree_worker import WorkerSettings
from retinue.testing import Scripted, call
from tests import postgres
from tests.cluster.test_nodes import run, until
from tests.cluster.workload import QUICK, node, rows

WITH_GPU = WorkerSettings(lease_seconds=3.0, idle_seconds=0.3, drain_seconds=5.0, offers=("gpu",))


class Places:
    """Agents for one worker, whose calls note where they were made."""

    def __init__(self, name: str, calls: list[tuple[str, str]]) -> None:
        @tool(restart="unsafe")
        async def render() -> str:
            """Render."""
            calls.append(("render", name))
            await asyncio.sleep(0.05)
            return "rendered"

        @tool(restart="keyed")
        def split(context: Context) -> Actions:
            """Have it rendered."""
            calls.append(("split", name))
            return context.spawn_actions(self.child, "a frame", "another")

        self.child: Agent[Any, Any] = Agent(
            "child",
            "Render.",
            model=Scripted([call("render"), "a picture"], name="child"),
            tools=[render],
            options={"needs": ["gpu"]},
        )
        self.lead: Agent[Any, Any] = Agent(
            "lead",
            "Lead.",
            model=Scripted([call("split"), "a film"], name="lead"),
            tools=[split],
            staff=[self.child],
        )

    @property
    def agents(self) -> list[Agent[Any, Any]]:
        return [self.lead, self.child]


def test_a_run_with_a_need_waits_with_words_for_a_worker_that_offers_it() -> None:
    async def test() -> None:
        url, calls = postgres.fresh(), list[tuple[str, str]]()
        client, plain, strong = (Places(name, calls) for name in ("client", "plain", "strong"))
        async with (
            node(url, settings=None, agents=client.agents) as asking,
            node(url, agents=plain.agents),
        ):
            id = await asking.spawn(client.child, "a frame")

            async def waits() -> bool:
                return await rows(
                    url, "select needs from trees where owner is null and is_open"
                ) == [(["gpu"],)]

            await until(waits)
            (row,) = [one async for one in asking.runs()]
            assert (row.state, row.waiting_for) == ("queued", "lane")
            epoch = await rows(url, "select epoch from trees where root = %s", id)
            await asyncio.sleep(1.5)
            assert await rows(url, "select epoch from trees where root = %s", id) == epoch
            (need,) = (await asyncio.to_thread(cluster_status, url)).needs
            assert (need.name, need.trees, need.workers) == ("gpu", 1, 0)
            async with node(url, agents=strong.agents, settings=WITH_GPU):
                out = await asking.wait(id)
                assert (out.state, out.text) == ("completed", "a picture")
        assert calls == [("render", "strong")]
        assert await rows(url, "select count(*) from lane_slots") == [(0,)]

    run(test())


@pytest.mark.parametrize("dispatcher", [InDatabase, ProcrastinateJobs])
def test_a_tree_moves_to_where_its_sub_agents_can_work_and_no_call_is_repeated(
    dispatcher: Callable[[str], Dispatcher],
) -> None:
    async def test() -> None:
        url, calls = postgres.fresh(), list[tuple[str, str]]()
        client, plain, strong = (Places(name, calls) for name in ("client", "plain", "strong"))
        async with (
            node(url, settings=None, agents=client.agents, dispatcher=dispatcher(url)) as asking,
            node(url, agents=plain.agents, dispatcher=dispatcher(url)),
        ):
            id = await asking.spawn(client.lead, "a film")

            async def waits() -> bool:
                return await rows(
                    url, "select needs from trees where owner is null and is_open"
                ) == [(["gpu"],)]

            await until(waits)
            other = dispatcher(url)
            async with node(url, agents=strong.agents, settings=WITH_GPU, dispatcher=other):
                out = await asking.wait(id)
            assert (out.state, out.text) == ("completed", "a film")
            assert [(await asking.record(one.id)).run.restarts for one in out.children] == [0, 0]
        assert calls == [("split", "plain"), ("render", "strong"), ("render", "strong")]
        assert await rows(url, "select count(*) from takeovers") == [(0,)]

    run(test())


def test_a_run_that_waits_for_a_need_can_be_cancelled_although_nobody_offers_it() -> None:
    async def test() -> None:
        url, calls = postgres.fresh(), list[tuple[str, str]]()
        client, plain = (Places(name, calls) for name in ("client", "plain"))
        async with (
            node(url, settings=None, agents=client.agents) as asking,
            node(url, agents=plain.agents),
        ):
            id = await asking.spawn(client.child, "a frame")

            async def waits() -> bool:
                return await rows(
                    url, "select needs from trees where owner is null and is_open"
                ) == [(["gpu"],)]

            await until(waits)
            out = await asking.cancel(id, "enough")
            assert out.state == "cancelled"
        assert calls == []

    run(test())


def test_what_was_at_work_on_a_worker_that_died_is_not_continued_where_its_need_is_missing() -> (
    None
):
    async def test() -> None:
        url, calls = postgres.fresh(), list[tuple[str, str]]()
        client, plain = Places("client", calls), Places("plain", calls)
        strong, second = Places("strong", calls), Places("second", calls)
        async with node(url, settings=None, agents=client.agents) as asking:
            async with node(url, agents=strong.agents, settings=WITH_GPU) as dying:
                id = await asking.spawn(client.child, "a frame")

                async def renders() -> bool:
                    return bool(calls)

                await until(renders)
                # Its tree is free from one moment to the next, in the middle of a call.
                assert dying.worker is not None
                for activation in dying.worker.driven.values():
                    activation.give_up()
                dying.worker.is_leaving = True
            async with node(url, agents=plain.agents):

                async def is_left() -> bool:
                    return await rows(
                        url, "select needs from trees where owner is null and is_open"
                    ) == [(["gpu"],)]

                await until(is_left)
                async with node(url, agents=second.agents, settings=WITH_GPU):
                    out = await asking.wait(id)
            assert out.state == "completed"
        assert [name for _, name in calls] == ["strong"], "an unsafe call is not repeated"

    run(test())


def test_a_directory_is_a_need(tmp_path: Path) -> None:
    async def test() -> None:
        url, there = postgres.fresh(), tmp_path / "there"
        calls: list[tuple[str, str]] = []
        client, plain = (Places(name, calls) for name in ("client", "plain"))
        async with (
            node(url, settings=None, agents=client.agents) as asking,
            node(url, agents=plain.agents, settings=QUICK),
        ):
            quick = Agent("child", "Say.", model=Scripted(["said"], name="child"))
            id = await asking.spawn(quick, "say", needs=[str(there)])

            async def waits() -> bool:
                return await rows(
                    url, "select needs from trees where owner is null and is_open"
                ) == [([str(there)],)]

            await until(waits)
            there.mkdir()
            assert (await asking.wait(id)).state == "completed"

    run(test())
