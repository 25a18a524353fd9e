"""Recovery of many runs: how long until all go on after three deaths, how many deaths until the run
that kills is put aside, and what is left in memory when all have ended. `python -m bench.recovery
[n]` prints one line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from retinue import Agent, Retinue
from retinue.testing import Scripted
from tests.api.dying import Crowd, die


class KilledProcesses(Crowd):
    def __init__(self, file: Path, killer: int | None = None) -> None:
        super().__init__(killer, seconds=3_600)
        self.file = file

    async def live(self, n: int, *, new: int = 0, seconds: float = 60.0) -> tuple[bool, float]:
        """One process until all `n` are at work, or it dies: whether it lived, and after how
        long."""
        self.forget()
        retinue, began = Retinue(self.file, agents=[self.agent]), time.monotonic()
        await retinue.__aenter__()
        await asyncio.gather(*(retinue.spawn(self.agent, f"task {i}") for i in range(new)))
        while len(self.begun) < n and not self.dead.is_set() and time.monotonic() - began < seconds:
            await asyncio.sleep(0.01)
        elapsed = time.monotonic() - began
        await die(retinue)
        await retinue._engine.store.close()  # as the kernel would let go of its lock
        return not self.dead.is_set(), elapsed


async def all_go_on(file: Path, n: int) -> float:
    processes = KilledProcesses(file)
    await processes.live(n, new=n)
    for _ in range(2):
        await processes.live(n, seconds=0.5)
    return round((await processes.live(n))[1], 2)


async def one_is_found(file: Path, n: int) -> int:
    processes, deaths = KilledProcesses(file, killer=n // 3), 1
    await processes.live(n, new=n)
    while not (await processes.live(n - 1))[0]:
        deaths += 1
    return deaths


async def left_in_memory(file: Path, n: int) -> dict[str, float]:
    agent = Agent("one", model=Scripted(["x"], name="m"))
    async with Retinue(file) as retinue:
        await asyncio.gather(*(retinue.run(agent, "Go.") for _ in range(200)))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(n // 500):
            await asyncio.gather(*(retinue.run(agent, "Go.") for _ in range(500)))
        after = tracemalloc.get_traced_memory()[0]
        timers, trees = len(retinue._engine.timers._heap), len(retinue._engine.trees.by_root)
        tracemalloc.stop()
    return {"bytes_per_run": round((after - before) / n, 1), "timers": timers, "trees": trees}


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    results: dict[str, object] = {"n": n}
    works = {"all_go_on_s": all_go_on, "deaths_until_found": one_is_found, "left": left_in_memory}
    for name, work in works.items():
        with tempfile.TemporaryDirectory() as folder:
            results[name] = asyncio.run(work(Path(folder) / "log.db", n))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
