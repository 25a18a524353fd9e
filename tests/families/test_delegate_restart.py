"""A process ends or dies in the middle: tasks go on, limits stay, and the channel hears each thing
once, in order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from retinue import Delivery
from retinue.testing import call
from tests.api.scripted_agents import STORES, Home, ended, on_virtual_time
from tests.families.delegate_world import GROUP, Recorder, World, background, parallel, pause, task

both = pytest.mark.parametrize("kind", STORES)


@both
@on_virtual_time
async def test_a_parallel_call_goes_on_after_a_restart_and_returns_all_results_in_order(
    kind: str, tmp_path: Path
) -> None:
    home, channel = Home(kind, tmp_path), Recorder()
    world = World(parallel(*(task(f"t{n}", f"after {10 * (n + 1)} say did {n}") for n in range(7))))
    async with home.open(channels={"hook": channel}) as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(25)
    async with home.open(channels={"hook": channel}, agents=[world.lead]) as retinue:
        outcome = await ended(retinue, run)
    expected = "\n\n".join(f"### t{n} (completed)\ndid {n}" for n in range(7))
    assert outcome.text == f"## Results\n\n{expected}"
    assert channel.texts == ["Working on 7 tasks..."]
    assert len(world.of("after 10 say did 0")) == 1, "what had ended is not run again"


@both
@on_virtual_time
async def test_a_background_group_survives_its_process(kind: str, tmp_path: Path) -> None:
    home, channel = Home(kind, tmp_path), Recorder()
    tasks = [task("a", "after 100 say A"), task("b", "after 20 say B"), task("c", "after 60 say C")]
    world = World(background(*tasks))
    async with home.open(channels={"hook": channel}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
        await asyncio.sleep(30)
    async with home.open(channels={"hook": channel}, agents=[world.lead]):
        await asyncio.sleep(1_000)
    group = GROUP.findall(outcome.text)[0]
    results = "### a (completed)\nA\n\n### b (completed)\nB\n\n### c (completed)\nC"
    assert channel.texts == [
        f"Started task group {group} with 3 tasks: 'a', 'b', 'c'",
        "'b' completed (1/3)",
        "'c' completed (2/3)",
        "'a' completed (3/3)",
        f"All 3 tasks of group {group} have reported.\n\n## Results\n\n{results}",
    ]


class Deaf(Recorder):
    """A channel that takes the first `n` messages, hears one more perhaps, and then never answers
    again."""

    def __init__(self, n: int, *, hears: bool) -> None:
        super().__init__()
        self._n, self._hears = n, hears

    async def send(self, delivery: Delivery) -> None:
        if len(self.heard) >= self._n:
            if self._hears:
                await super().send(delivery)
            await asyncio.sleep(1_000_000)
        await super().send(delivery)


@pytest.mark.parametrize(
    ("kind", "n", "hears"),
    [
        *(("memory", n, hears) for n in range(5) for hears in (False, True)),
        ("sqlite", 1, True),
        ("sqlite", 4, False),
    ],
)
@on_virtual_time
async def test_a_death_between_an_end_and_its_notice_loses_and_repeats_nothing_in_order(
    kind: str, tmp_path: Path, n: int, hears: bool
) -> None:
    """The process dies with all ends on record and `n` of five messages delivered; the one after
    them was perhaps taken by the channel, but the process does not know it."""
    home, before = Home(kind, tmp_path), Deaf(n, hears=hears)
    tasks = [task("a", "after 30 say A"), task("b", "after 10 say B"), task("c", "after 20 say C")]
    world = World(background(*tasks))
    async with AsyncExitStack() as dead:
        first = await dead.enter_async_context(home.open(channels={"hook": before}))
        await first.run(world.lead, "Go.")
        await asyncio.sleep(40)
        after = Recorder()
        after.heard.update(before.heard)
        await dead.enter_async_context(home.open(channels={"hook": after}, agents=[world.lead]))
        await asyncio.sleep(1_000)
    assert [t.split(" with ")[0].split(" of group ")[0] for t in after.texts] == [
        f"Started task group {GROUP.findall(after.texts[0])[0]}",
        "'b' completed (1/3)",
        "'c' completed (2/3)",
        "'a' completed (3/3)",
        "All 3 tasks",
    ]
    assert after.repeated == (1 if hears else 0)
    assert after.texts[4].endswith(
        "### a (completed)\nA\n\n### b (completed)\nB\n\n### c (completed)\nC"
    )


@both
@on_virtual_time
async def test_groups_of_an_earlier_process_count_for_the_limit(kind: str, tmp_path: Path) -> None:
    home, channel = Home(kind, tmp_path), {"hook": Recorder()}
    world = World(
        [background(task(f"t{n}", "after 300 say x")) for n in range(3)], pause(50, background("d"))
    )
    async with home.open(channels=channel) as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(10)
    async with home.open(channels=channel, agents=[world.lead]) as retinue:
        await ended(retinue, run)
        assert world.results[-1] == "Too many background task groups running: 3 (max 3)"
        other = await retinue.run(world.lead, "Go.")
        assert other.text == "Too many background task groups running: 3 (max 3)"
        await asyncio.sleep(400)
        world.lines = (background("e"),)
        assert (await retinue.run(world.lead, "Go.")).text.startswith("Started task group")


@both
@on_virtual_time
async def test_a_time_limit_goes_on_while_no_process_runs(kind: str, tmp_path: Path) -> None:
    home, channel = Home(kind, tmp_path), Recorder()
    world = World(background(task("a", "after 10000 say x")))
    async with home.open(channels={"hook": channel}) as retinue:
        await retinue.run(world.lead, "Go.")
        await asyncio.sleep(10)
    await asyncio.sleep(2_000)
    async with home.open(channels={"hook": channel}, agents=[world.lead]):
        await asyncio.sleep(10)
    assert channel.texts[1] == "'a' timed_out (1/1)"


@both
@on_virtual_time
async def test_a_group_of_an_earlier_process_can_be_cancelled(kind: str, tmp_path: Path) -> None:
    home, channel = Home(kind, tmp_path), Recorder()
    first, cancel = background(task("a", "after 300 say x")), call("cancel_tasks", task_ids=["a"])
    world = World(first, pause(50, cancel))
    async with home.open(channels={"hook": channel}) as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(10)
    async with home.open(channels={"hook": channel}, agents=[world.lead]) as retinue:
        assert (await ended(retinue, run)).text == "Cancelled: 'a'."
        await asyncio.sleep(10)
    assert channel.texts[1] == "'a' failed (1/1): cancelled by its parent"


@on_virtual_time
async def test_a_call_whose_process_died_before_it_was_recorded_starts_one_group(
    tmp_path: Path,
) -> None:
    """Death at every moment around the call: there is one group in the end, and its start was told
    once."""
    for passes in range(30):
        home, channel = Home("memory", tmp_path), Recorder()
        world = World(pause(1, background(task("a", "after 5 say A"))))
        async with AsyncExitStack() as dead:
            retinue = await dead.enter_async_context(home.open(channels={"hook": channel}))
            run = await retinue.spawn(world.lead, "Go.")
            await asyncio.sleep(1)
            for _ in range(passes):
                await asyncio.sleep(0)
            retinue = await dead.enter_async_context(
                home.open(channels={"hook": channel}, agents=[world.lead])
            )
            outcome: Any = await ended(retinue, run)
            await asyncio.sleep(1_000)
        group = GROUP.findall(outcome.text)[0]
        assert len(outcome.children) == 1
        assert [t.split("\n")[0] for t in channel.texts] == [
            f"Started task group {group} with 1 tasks: 'a'",
            "'a' completed (1/1)",
            f"All 1 tasks of group {group} have reported.",
        ]
