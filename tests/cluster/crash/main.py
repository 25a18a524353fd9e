"""`python -m tests.cluster.crash.main --kills 200`: workers on one PostgreSQL are killed, stopped
for longer than their lease and cut off, the database is restarted, and what is on record is
compared with what must be.

The last line of the output is one line of JSON; the exit code is 1 when anything was lost, repeated
or written by a worker that had lost its tree."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from retinue.cluster.dispatchers import dispatcher_of
from retinue.cluster.retinue_node import RetinueNode
from retinue.errors import RetinueError
from retinue.formats.dispatch_address import DATABASE, PROCRASTINATE, TEMPORAL
from tests import postgres, temporal
from tests.cluster.crash.checker import check
from tests.cluster.crash.proxy import Proxy
from tests.cluster.crash.workload import Journal, crew
from tests.cluster.workload import rows

LEASE = 2.0
ENGINES = (DATABASE, PROCRASTINATE, TEMPORAL)
WITHIN = 40.0
"""After the last fault everything has ended in so many seconds, or counts as stuck."""


@dataclass
class Faults:
    kills: int
    stops: int
    restarts: int
    cuts: int

    def drawn(self, chance: random.Random) -> list[str]:
        kinds = ["kill"] * self.kills + ["stop"] * self.stops
        kinds += ["restart"] * self.restarts + ["cut"] * self.cuts
        chance.shuffle(kinds)
        return kinds


@dataclass
class Slot:
    """A place for a worker, with its own way to the database."""

    url: str
    proxy: Proxy
    process: subprocess.Popen[bytes] | None = None
    is_busy: bool = False


@dataclass
class Cluster:
    server: postgres.PostgresServer
    folder: Path
    url: str
    dispatch: str
    slots: list[Slot] = field(default_factory=list)
    starts: int = 0

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    async def add(self, n: int) -> None:
        for i in range(n):
            proxy = Proxy(self.folder / f"net{i}", self.server.folder)
            await proxy.start()
            url = self.url.replace(str(self.server.folder), str(proxy.folder))
            self.slots.append(Slot(url, proxy))
            self.start(self.slots[-1])

    def start(self, slot: Slot) -> None:
        self.starts += 1
        command = [sys.executable, "-m", "tests.cluster.crash.process", slot.url]
        slot.process = subprocess.Popen([*command, str(self.journal), str(LEASE), self.dispatch])

    async def fault(self, kind: str, chance: random.Random) -> None:
        if kind == "restart":
            await asyncio.to_thread(self.server.kill)
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            await asyncio.to_thread(self.server.start)
            return
        slot = chance.choice(await self._ready())
        slot.is_busy = True
        try:
            await self._harm(kind, slot, chance)
        finally:
            slot.is_busy = False

    async def _ready(self) -> list[Slot]:
        while True:
            if ready := await self._at_work():
                return ready
            await asyncio.sleep(0.1)

    async def _at_work(self) -> list[Slot]:
        """The places whose workers own trees now: a fault that hits no work shows nothing."""
        try:
            result = await rows(
                self.url,
                "select w.pid from workers w where w.until > now()"
                " and exists (select 1 from trees t where t.owner = w.id)",
            )
        except psycopg.Error:
            return []
        pids = {pid for (pid,) in result}
        free = [slot for slot in self.slots if not slot.is_busy]
        return [slot for slot in free if slot.process is not None and slot.process.pid in pids]

    async def _harm(self, kind: str, slot: Slot, chance: random.Random) -> None:
        process = slot.process
        assert process is not None
        if kind == "kill" or process.poll() is not None:
            process.kill()
            await asyncio.to_thread(process.wait)
            self.start(slot)
        elif kind == "stop":
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(LEASE * chance.uniform(1.2, 2.5))
            process.send_signal(signal.SIGCONT)
        else:
            await slot.proxy.cut(LEASE * chance.uniform(0.1, 2.0))

    async def stop(self) -> None:
        for slot in self.slots:
            if slot.process is not None:
                slot.process.send_signal(signal.SIGCONT)
                slot.process.terminate()
        for slot in self.slots:
            if slot.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(slot.process.wait, 15)
                slot.process.kill()
                await asyncio.to_thread(slot.process.wait)
            await slot.proxy.stop()


async def one_tree(node: RetinueNode[None], lead: Any, n: int) -> str:
    """Start a run and wait for its end, whatever becomes of the database meanwhile."""
    id = ""
    while True:
        try:
            if not id:
                id = await node.spawn(lead, f"tree{n}", key=f"k{n}")
            await node.wait(id)
            return id
        except (RetinueError, OSError):
            await asyncio.sleep(0.2)


async def load(
    node: RetinueNode[None], lead: Any, at_once: int, enough: asyncio.Event, roots: list[str]
) -> None:
    numbers = iter(range(1_000_000))

    async def client() -> None:
        while not enough.is_set():
            roots.append(await one_tree(node, lead, next(numbers)))

    await asyncio.gather(*(client() for _ in range(at_once)))


async def run(
    faults: Faults,
    *,
    workers: int,
    at_once: int,
    seed: int,
    pause: float = 1.0,
    dispatch: str = DATABASE,
) -> dict[str, Any]:
    chance, began = random.Random(seed), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="retinue-cluster-"))
    with postgres.own_server() as server:
        url = await asyncio.to_thread(postgres.fresh, server)
        cluster = Cluster(server, folder, url, dispatch)
        agents = crew(Journal(str(cluster.journal)))
        node: RetinueNode[None]
        dispatcher = dispatcher_of(dispatch, url)
        async with RetinueNode(url, worker=None, dispatcher=dispatcher, agents=agents) as node:
            await cluster.add(workers)
            enough, roots = asyncio.Event(), list[str]()
            loading = asyncio.create_task(load(node, agents[0], at_once, enough, roots))
            under_way = set[asyncio.Task[None]]()
            for kind in faults.drawn(chance):
                await asyncio.sleep(chance.uniform(0.1, 2 * pause))
                if len(under_way) >= workers - 1:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(cluster.fault(kind, chance))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await asyncio.gather(*under_way)
            enough.set()
            stuck = False
            try:
                await asyncio.wait_for(loading, WITHIN)
            except TimeoutError:
                stuck = True
                await show(url)
            out: dict[str, Any] = {"stuck": stuck, "trees": len(roots)}
            await cluster.stop()
            out |= await check(node, url, roots, cluster.journal)
            out |= await takeovers(url)
    shutil.rmtree(folder, ignore_errors=True)
    out["faults"] = faults.kills + faults.stops + faults.restarts + faults.cuts
    out |= {"kills": faults.kills, "stops": faults.stops, "restarts": faults.restarts}
    out |= {"cuts": faults.cuts, "seed": seed, "seconds": round(time.monotonic() - began, 1)}
    out["dispatch"] = dispatch.partition(":")[0]
    out["load"] = round(os.getloadavg()[0], 1)
    return out


async def show(url: str) -> None:
    """What is left open, for whoever looks for the reason."""
    for sql in (
        "select root, epoch, owner, wake_at, is_open, handed_over, now() from trees where is_open",
        "select n, root, kind, at from inbox",
        "select id, root, state, turn, open from runs where open",
        "select pid, state, wait_event_type, wait_event, now() - xact_start, query"
        " from pg_stat_activity where xact_start is not null",
        "select id, pid, until, draining, now() from workers",
    ):
        for row in await rows(url, sql):
            sys.stderr.write(f"{row}\n")


async def takeovers(url: str) -> dict[str, int]:
    """How often a worker lost its trees, and how many trees that were."""
    ((n_trees, n_workers, n_crashes),) = await rows(
        url,
        "select count(*), count(distinct former), count(distinct former) filter (where crashed)"
        " from takeovers",
    )
    return {"trees_taken": n_trees, "take_overs": n_workers, "crashes_seen": n_crashes}


def is_good(out: dict[str, Any]) -> bool:
    bad = ("lost", "twice", "unsafe_reruns", "old_commits", "quarantined", "not_completed", "gaps")
    return (
        not out["stuck"]
        and not any(out[name] for name in bad)
        and out["take_overs"] <= out["faults"]
        and out["trees"] > 0
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stops", type=int, help="a quarter as many, unless given")
    parser.add_argument("--restarts", type=int, help="one twentieth")
    parser.add_argument("--cuts", type=int, help="one tenth")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between faults")
    parser.add_argument("--dispatch", choices=ENGINES, default=DATABASE, help="what wakes workers")
    args = parser.parse_args()
    n = args.kills
    faults = Faults(
        n,
        n // 4 if args.stops is None else args.stops,
        n // 20 if args.restarts is None else args.restarts,
        n // 10 if args.cuts is None else args.cuts,
    )
    out = asyncio.run(
        run(
            faults,
            workers=args.workers,
            at_once=args.at_once,
            seed=args.seed,
            pause=args.pause,
            dispatch=f"temporal://{temporal.address()}"
            if args.dispatch == TEMPORAL
            else args.dispatch,
        )
    )
    sys.stdout.write(json.dumps(out) + "\n")
    return 0 if is_good(out) else 1


if __name__ == "__main__":
    sys.exit(main())
