"""Processes that die again and again on one store: the run that does it is found, the others only
wait a little."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import Limits
from tests.api.dying import Crowd, die
from tests.api.scripted_agents import Home, on_virtual_time
from tests.simulation.trials import most_deaths

AT_ONCE = 4.5
"""Seconds within which everybody is taken up: three waves, or the longest that a single suspect is
held back."""


class KilledProcesses(Crowd):
    """Such runs, and a store on which processes follow each other."""

    def __init__(self, kind: str, folder: Path, killer: int | None = None) -> None:
        super().__init__(killer)
        self.home = Home(kind, folder)

    async def live(self, n: int = 0, seconds: float = AT_ONCE, **rules: Any) -> tuple[bool, int]:
        """One process: whether it was alive after so many seconds, and how many runs were at work
        by then."""
        self.forget()
        retinue = self.home.open(agents=[self.agent], limits=Limits(**rules))
        await retinue.__aenter__()
        for i in range(n):
            await retinue.spawn(self.agent, f"task {i}")
        try:
            await asyncio.wait_for(self.dead.wait(), seconds)
        except TimeoutError:
            return True, len(self.begun)
        finally:
            await die(retinue)
        return False, len(self.begun)

    async def states(self) -> list[str]:
        async with self.home.open() as retinue:
            return [line.state async for line in retinue.runs(limit=100_000)]


@pytest.mark.parametrize(("kind", "n"), [("memory", 1_000), ("sqlite", 50)])
@on_virtual_time
async def test_the_run_that_kills_is_found_in_log2_starts(
    kind: str, n: int, tmp_path: Path
) -> None:
    processes, deaths = KilledProcesses(kind, tmp_path, killer=n // 3), 0
    alive, _ = await processes.live(n)
    while not alive:
        deaths += 1
        alive, at_work = await processes.live(seconds=10)
    assert deaths <= most_deaths(n)
    assert at_work == n - 1
    states = await processes.states()
    assert (states.count("interrupted"), states.count("thinking")) == (1, n - 1)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("seconds", [0.2, 1.5, 2.5, 20.0])
@on_virtual_time
async def test_a_loop_of_kills_puts_nobody_aside(seconds: float, kind: str, tmp_path: Path) -> None:
    processes = KilledProcesses(kind, tmp_path)
    await processes.live(20)
    for _ in range(12):
        await processes.live(seconds=seconds)
    assert await processes.states() == ["thinking"] * 20


@on_virtual_time
async def test_after_three_deaths_everybody_is_at_work_within_seconds(tmp_path: Path) -> None:
    processes = KilledProcesses("memory", tmp_path)
    await processes.live(500)
    for _ in range(2):
        await processes.live(seconds=0.1)
    assert await processes.live() == (True, 500)


@on_virtual_time
async def test_whoever_makes_progress_ends_its_wave_early(tmp_path: Path) -> None:
    processes = KilledProcesses("memory", tmp_path)
    await processes.live(40)
    await processes.live(seconds=0.1)
    processes.seconds = 0.05
    assert await processes.live(seconds=0.5) == (True, 40)


@on_virtual_time
async def test_an_acquittal_is_on_record(tmp_path: Path) -> None:
    processes = KilledProcesses("memory", tmp_path)
    await processes.live(2)
    await processes.live(seconds=0.1)
    await processes.live(seconds=AT_ONCE)
    rows = (await processes.home.store.survivor().load()).open
    assert [(r.run.suspicion.deaths, r.run.suspicion.cleared) for r in rows] == [(0, 1), (0, 1)]
