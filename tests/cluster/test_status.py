"""What `retinue cluster status` says, and what draining does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue import Agent, NotFound, tool
from retinue.cluster.status import cluster_status, drain_worker
from retinue.testing import Scripted, call
from tests import postgres
from tests.cluster.test_nodes import run, until
from tests.cluster.workload import agents, node, rows


def test_the_status_counts_workers_and_trees() -> None:
    async def test() -> None:
        url, own = postgres.fresh(), agents()
        async with node(url, agents=own, name="first") as one:
            await one.run(own[0], "do it")
            now = await asyncio.to_thread(cluster_status, url)
            assert [(worker.name, worker.is_draining) for worker in now.workers] == [
                ("first", False)
            ]
            assert (now.open_trees - now.driven, now.without_owner, now.due, now.inbox) == (
                0,
                0,
                0,
                0,
            )

    run(test())


def test_a_drained_worker_ends_its_unsafe_call_once_and_another_continues() -> None:
    calls: list[int] = []

    @tool(restart="unsafe")
    async def pay() -> str:
        """Pay, slowly."""
        calls.append(1)
        await asyncio.sleep(1.5)
        return "paid"

    def payer() -> Agent[Any, Any]:
        model = Scripted([call("pay"), call("pay"), "done"], name="payer")
        return Agent("payer", "Pay.", model=model, tools=[pay])

    async def test() -> None:
        url, own = postgres.fresh(), payer()
        async with node(url, settings=None, agents=[own]) as asking:
            async with node(url, agents=[payer()], name="old"):
                id = await asking.spawn(own, "pay twice")

                async def pays() -> bool:
                    return bool(calls)

                await until(pays)
                async with node(url, agents=[payer()], name="new"):
                    await asyncio.to_thread(drain_worker, url, "old")
                    out = await asking.wait(id)
            assert (out.state, out.text, len(calls)) == ("completed", "done", 2)
            texts = [message.text for message in await asking.messages(id)]
            assert texts.count("paid") == 2
        assert await rows(url, "select count(*) from takeovers") == [(0,)]
        with pytest.raises(NotFound):
            drain_worker(url, "nobody")

    run(test())
