"""Thousands of runs behind one governor: through outages and failures all of them end, and nobody
storms."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

from retinue import Agent, Retinue, tool
from retinue.errors import ModelError, ModelUnavailable
from retinue.testing import VirtualClock, run_virtual
from tests.models.governor_world import overloaded
from tests.models.http_world import InProcess, at_rest


def crowd(model: InProcess, n: int, spread: float = 0.0) -> tuple[list[Any], float]:
    """Run so many agents at once on virtual time; their outcomes, and when the last ended."""

    @tool(restart="pure")
    async def read(path: str) -> str:
        """Reads a file."""
        await asyncio.sleep(1.0)
        return "contents"

    agent = Agent("one", "Be brief.", model=model, tools=[read])

    async def story() -> tuple[list[Any], float]:
        async def one(retinue: Retinue, i: int) -> Any:
            await asyncio.sleep(spread * i / n)
            return await retinue.wait(await retinue.spawn(agent, f"Task {i}."))

        async with Retinue(clock=VirtualClock()) as retinue:
            ends = await asyncio.gather(*(one(retinue, i) for i in range(n)))
        return ends, asyncio.get_running_loop().time()

    return run_virtual(story())


def test_after_an_outage_of_half_an_hour_all_runs_finish_and_nobody_storms() -> None:
    begin, end = 60.0, 60.0 + 1_800.0
    model = InProcess(lambda now: overloaded() if begin <= now < end else None, calls=50)
    ends, last = crowd(model, 200)
    assert [e.state for e in ends] == ["completed"] * 200
    times = [at for at in model.starts if begin + 30 <= at < end]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert min(gaps) >= 5.0, "at most one probe in five seconds"
    assert len(times) >= 250, "and it goes on probing"
    assert sum(begin <= at < begin + 30 for at in model.starts) <= 300, "the outage is noticed soon"
    normal = model.peak(0.0, begin)
    assert model.peak(end, last + 1) < 2 * normal
    assert min(at for at in model.starts if at >= end) <= end + 5.0
    assert model.peak(end, end + 60.0) >= normal / 4, "within a minute it is at work again"
    assert last < end + 600.0
    assert at_rest(model.governor)


def test_with_half_of_ten_thousand_calls_failing_all_runs_end_with_three_times_the_calls() -> None:
    draw = random.Random(7)
    kinds = ["overloaded", "server_error", "network", "server_error", "network", "rate_limit"]

    def fails(now: float) -> ModelError | None:
        return ModelUnavailable("flap", draw.choice(kinds)) if draw.random() < 0.5 else None

    model = InProcess(fails, calls=9)
    ends, _ = crowd(model, 500)
    assert [e.state for e in ends] == ["completed"] * 500
    assert 8_000 < len(model.starts) <= 15_000
    assert at_rest(model.governor)
