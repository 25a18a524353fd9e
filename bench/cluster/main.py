"""`python -m bench.cluster.main`: workers on a PostgreSQL that synchronises every commit, beside a
bare job of Procrastinate on the same server. One line of JSON at the end.

How long one run takes from its start to its end; how many end each second with 1, 2 and 4 workers,
and what CPU a run takes; when the trees of a killed worker are taken; and what 1,000 trees that
sleep cost while nothing happens."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import procrastinate
import psycopg

from bench.cluster.agents import CHILDREN, cluster_agents
from retinue.cluster.dispatchers import dispatcher_of
from retinue.cluster.retinue_node import RetinueNode
from retinue.formats.dispatch_address import DATABASE, PROCRASTINATE
from tests.postgres import PostgresServer, fresh, own_server

LEASE = 4.0
TICKS = os.sysconf("SC_CLK_TCK")
Figures = dict[str, Any]


def cpu_of(pids: list[int]) -> float:
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


async def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return await (await connection.execute(sql)).fetchall()


@contextlib.asynccontextmanager
async def workers(url: str, n: int, dispatch: str) -> AsyncIterator[list[Process]]:
    async with client(url, dispatch):  # it makes the tables
        pass
    words = [sys.executable, "-m", "bench.cluster.worker", url, dispatch, str(LEASE)]
    started = [await asyncio.create_subprocess_exec(*words) for _ in range(n)]
    try:
        while (await rows(url, "select count(*) from workers")) != [(n,)]:
            await asyncio.sleep(0.1)
        yield started
    finally:
        for one in started:
            with contextlib.suppress(ProcessLookupError):
                one.terminate()
        for one in started:
            await one.wait()


@contextlib.asynccontextmanager
async def client(url: str, dispatch: str) -> AsyncIterator[RetinueNode[None]]:
    node: RetinueNode[None]
    async with RetinueNode(
        url, worker=None, dispatcher=dispatcher_of(dispatch, url), agents=cluster_agents()
    ) as node:
        yield node


async def bare_jobs(url: str, n: int) -> Figures:
    """A job that does nothing, from being deferred to having been done."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    durations: asyncio.Queue[float] = asyncio.Queue()

    @app.task(name="nothing")
    async def nothing() -> None:
        durations.put_nowait(time.perf_counter())

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(app.run_worker_async(install_signal_handlers=False))
        times = []
        for _ in range(n):
            began = time.perf_counter()
            await nothing.defer_async()
            times.append(await durations.get() - began)
        began = time.perf_counter()
        await asyncio.gather(*(nothing.defer_async() for _ in range(n)))
        for _ in range(n):
            await durations.get()
        rate = n / (time.perf_counter() - began)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    return {"p50_ms": round(statistics.median(times) * 1e3, 1), "per_second": round(rate)}


async def one_run(url: str, dispatch: str, n: int) -> Figures:
    """A run of one turn, from `spawn` to its outcome."""
    quick = cluster_agents()[2]
    async with workers(url, 1, dispatch), client(url, dispatch) as node:
        await node.run(quick, "warm up")
        times = []
        for _ in range(n):
            began = time.perf_counter()
            await node.run(quick, "answer")
            times.append(time.perf_counter() - began)
    return {"p50_ms": round(statistics.median(times) * 1e3, 1)}


async def many_runs(url: str, n_workers: int, trees: int) -> Figures:
    lead = cluster_agents()[0]
    async with workers(url, n_workers, DATABASE) as started, client(url, DATABASE) as node:
        await node.run(lead, "warm up")
        pids = [one.pid for one in started]
        before, began = cpu_of(pids), time.perf_counter()
        outcomes = await asyncio.gather(*(node.run(lead, f"tree {i}") for i in range(trees)))
        seconds, used = time.perf_counter() - began, cpu_of(pids) - before
    assert all(one.state == "completed" for one in outcomes)
    runs = trees * (CHILDREN + 1)
    return {"runs_per_second": round(runs / seconds), "cpu_ms": round(used / runs * 1e3, 2)}


async def recovery(url: str, trees: int) -> Figures:
    """From the kill of one of two workers until another has taken the last of its trees."""
    slow = cluster_agents()[3]
    async with workers(url, 2, DATABASE) as started, client(url, DATABASE) as node:
        await asyncio.gather(*(node.spawn(slow, f"tree {i}") for i in range(trees)))
        pid = started[0].pid
        owned = f"select count(*) from trees t join workers w on w.id = owner where w.pid = {pid}"
        while not (n_owned := (await rows(url, owned))[0][0]):
            await asyncio.sleep(0.1)
        started[0].kill()
        began = time.perf_counter()
        query = "select count(*) from takeovers"
        first = 0.0
        while (n := (await rows(url, query))[0][0]) < n_owned:
            first = first or (time.perf_counter() - began if n else 0.0)
            await asyncio.sleep(0.05)
        last = time.perf_counter() - began
    return {
        "trees": n_owned,
        "first_seconds": round(first or last, 1),
        "last_seconds": round(last, 1),
    }


async def sleepers(url: str, trees: int) -> Figures:
    """What more trees that wait for an answer cost a worker that has had some before: connections
    and CPU, while nothing happens."""
    asker = cluster_agents()[4]
    count = "select count(*) from pg_stat_activity where datname = current_database()"
    async with workers(url, 1, DATABASE) as started:
        pids = [started[0].pid]

        async def start(n: int) -> None:
            async with client(url, DATABASE) as node:
                for _ in range(0, n, 50):
                    starts = (node.spawn(asker, "ask", questions="ask") for _ in range(50))
                    await asyncio.gather(*starts)
            while await rows(url, "select 1 from trees where owner is not null limit 1"):
                await asyncio.sleep(0.2)

        async def idle() -> tuple[int, float]:
            used = cpu_of(pids)
            await asyncio.sleep(10)
            return (await rows(url, count))[0][0], (cpu_of(pids) - used) / 10

        await start(100)
        few = await idle()
        await start(trees)
        many = await idle()
    return {
        "trees": trees,
        "connections": many[0] - few[0],
        "cpu_percent": round((many[1] - few[1]) * 100, 1),
    }


async def measure(server: PostgresServer, scale: float) -> Figures:
    n = max(10, int(60 * scale))
    out: Figures = {"bare_job": await bare_jobs(fresh(server), n)}
    for dispatch in (DATABASE, PROCRASTINATE):
        out[f"run_by_{dispatch}"] = await one_run(fresh(server), dispatch, n)
    for n_workers in (1, 2, 4):
        out[f"workers_{n_workers}"] = await many_runs(fresh(server), n_workers, n)
    out["recovery"] = await recovery(fresh(server), 20)
    out["asleep"] = await sleepers(fresh(server), max(100, int(1_000 * scale)))
    return out


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    scale = parser.parse_args().scale
    with own_server(fsync="on", full_page_writes="on") as server:
        figures = asyncio.run(measure(server, scale))
    cpus = [figures[f"workers_{n}"]["cpu_ms"] for n in (1, 2, 4)]
    figures["lease_seconds"], figures["load"] = LEASE, round(os.getloadavg()[0], 1)
    figures["ok"] = max(cpus) < 2 * min(cpus) and figures["asleep"]["connections"] <= 0
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
