"""How many events are recorded each second, in a file and in a database."""

from __future__ import annotations

import asyncio
import os
import tempfile

from bench.workload import RULES, Bench, wall
from retinue import Retinue
from tests.postgres import fresh, own_server

Figures = dict[str, object]


async def _events_in(store: str) -> tuple[int, float]:
    """So many events, each second, of five times 400 roots at once."""
    bench = Bench(1)
    async with Retinue(store, limits=RULES) as retinue:
        await retinue.run(bench.worker, "warm up")
        first = retinue._engine.position
        began = wall()
        for _ in range(5):
            runs = await asyncio.gather(
                *(retinue.spawn(bench.worker, f"item {i}") for i in range(400))
            )
            await asyncio.gather(*map(retinue.wait, runs))
        events = retinue._engine.position - first
        return events, events / (wall() - began)


def durable_events() -> Figures:
    """Events per second on SQLite FULL with group commit, 200 roots at once."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
        events, rate = asyncio.run(_events_in(os.path.join(folder, "log.db")))
    return {"events": events, "events_per_second": round(rate), "ok": rate >= 5_000}


def postgres_events() -> Figures:
    """The same on a PostgreSQL of this machine that synchronises every commit, relative to SQLite;
    the median of five rounds, each of both."""
    pairs = []
    with own_server(fsync="on", full_page_writes="on") as server:
        for _ in range(5):
            with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
                _, file = asyncio.run(_events_in(os.path.join(folder, "log.db")))
            events, rate = asyncio.run(_events_in(fresh(server)))
            pairs.append((rate / file, rate, file))
    ratio, rate, file = sorted(pairs)[2]
    return {
        "events": events,
        "events_per_second": round(rate),
        "sqlite": round(file),
        "ratio": round(ratio, 2),
        "ok": ratio >= 0.3,
    }
