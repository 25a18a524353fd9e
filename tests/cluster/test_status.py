"""What `retinue cluster status` says, and what draining does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue import Agent, NotFound, tool
from retinue.cluster import ownership
from retinue.cluster.status import cluster_status, drain_worker
from retinue.cluster.status_types import ClusterStatus, LaneLine, WorkerLine
from retinue.cluster.tree_format import FORMAT
from retinue.host.metrics import prometheus_text
from retinue.store.postgres.connections import connect
from retinue.testing import Scripted, call
from retinue.view.cluster_lines import status_lines
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


def test_a_tree_of_a_newer_version_is_left_alone_until_a_newer_worker_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        url, own = postgres.fresh(), agents()
        async with node(url, settings=None, agents=own) as asking:
            monkeypatch.setattr(ownership, "FORMAT", FORMAT + 1)
            start = asyncio.create_task(asking.spawn(own[0], "do it"))

            async def is_put() -> bool:
                return await rows(url, "select count(*) from inbox") == [(1,)]

            await until(is_put)
            monkeypatch.setattr(ownership, "FORMAT", FORMAT)
            ((root,),) = await rows(url, "select root from trees where format > 1")
            async with node(url, name="old") as old:
                assert await old._ownership.due(10) == []
                assert await old._ownership.take(root) is None
                now = await asyncio.to_thread(cluster_status, url)
                assert (now.open_trees, now.driven, now.too_new) == (1, 0, 1)
                assert "newer version" in status_lines(now)[-1]
                monkeypatch.setattr(ownership, "FORMAT", FORMAT + 1)
                assert (await asking.wait(await start)).text == "all done"

    run(test())


def test_a_worker_lets_go_when_a_newer_version_has_changed_the_tables() -> None:
    async def test() -> None:
        url = postgres.fresh()
        async with node(url, name="old") as one:
            assert one.worker is not None
            newest = "select max(number) + 1 from retinue_schema"
            with connect(url) as db:
                db.execute(f"insert into retinue_schema (number) {newest}")

            async def leaves() -> bool:
                return one.worker is not None and one.worker.is_leaving

            await until(leaves)
            now = await asyncio.to_thread(cluster_status, url)
            assert [worker.name for worker in now.workers] == ["old"]

    run(test())


def test_the_status_in_words_says_what_to_do() -> None:
    up = WorkerLine("1", "first", "0.1.0", False, 8.0, 3)
    silent = WorkerLine("22", "second machine", "0.1.0", False, -2.0, 1)
    now = ClusterStatus((up, silent), (LaneLine("gpu", 1, 1, 2),), 6, 3, 1, 2, 95.0, 1, 0, 4, 3.0)
    assert "\n".join(status_lines(now)) == (
        "worker          state   trees  lease  version  id\n"
        "first           up      3      8s     0.1.0    1\n"
        "second machine  silent  1      over   0.1.0    22\n"
        "\n"
        "2 workers drive 3 of 6 open trees.\n"
        "2 trees due, the first for 1m 35s.\n"
        "1 tree of workers that are gone.\n"
        "4 events not taken in yet, the first for 3s.\n"
        "Lane gpu: 1 of 1 slot, 2 waiting.\n"
        "Worker second machine is silent: other workers take its trees.\n"
        "1 tree due for more than half a minute. Check that a worker knows their agents."
    )
    nobody = ClusterStatus((), (), 1, 0, 0, 0, 0.0, 0, 0, 0, 0.0)
    assert status_lines(nobody)[-1] == "No worker drives them. Start one with `retinue worker`."


def test_the_metrics_of_any_node_count_the_whole_cluster() -> None:
    up = WorkerLine("1", "first", "0.1.0", False, 8.0, 3)
    now = ClusterStatus((up,), (), 6, 3, 1, 2, 95.4, 1, 0, 4, 3.0)
    text = prometheus_text(
        open_runs=0,
        dormant_runs=0,
        questions=0,
        deliveries=(),
        is_stuck=False,
        requests={},
        cluster=now,
    )
    for line in (
        'retinue_cluster_workers{state="up"} 1',
        'retinue_cluster_workers{state="silent"} 0',
        "retinue_cluster_open_trees 6",
        "retinue_cluster_late_seconds 95",
        "retinue_cluster_stuck_trees 1",
    ):
        assert line in text.splitlines()
