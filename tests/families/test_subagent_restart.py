"""A process ends or dies in the middle: helpers go on, limits stay as they were, and quotas forget
nothing."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Outcome, Retinue
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import STORES, Home, on_virtual_time
from tests.families.subagent_world import (
    NESTING,
    PLAIN,
    TOOLS,
    Stage,
    many,
    one,
    pause,
    played,
    task,
)

both = pytest.mark.parametrize("kind", STORES)
SPENT = "Resource quota exceeded: "


@both
@on_virtual_time
async def test_a_call_goes_on_after_a_restart_and_returns_its_summary(
    kind: str, tmp_path: Path
) -> None:
    home = Home(kind, tmp_path)
    stage = Stage(one("a"), does={"a": [call("look_up", word="x"), pause(20, "did it")]})
    async with home.open() as retinue:
        run = await retinue.spawn(stage.lead, "Go.")
        await asyncio.sleep(10)
    async with home.open(agents=[stage.lead]) as retinue:
        output = await played(retinue, run)
    assert output.result["output"] == "sum of a"
    assert output.result["metadata"]["completion_status"] == "complete"
    assert [q.purpose for q in stage.of("a")] == ["turn", "turn", "turn", "summary"]


@both
@on_virtual_time
async def test_a_summary_that_was_interrupted_is_asked_for_again_and_once_in_the_conversation(
    kind: str, tmp_path: Path
) -> None:
    home = Home(kind, tmp_path)
    stage = Stage(one("a", summary_prompt="And?"), sums={"a": pause(20, "that")})
    async with home.open() as retinue:
        run = await retinue.spawn(stage.lead, "Go.")
        await asyncio.sleep(10)
    async with home.open(agents=[stage.lead]) as retinue:
        output = await played(retinue, run)
    assert output.result["output"] == "that"
    assert [m.text for m in stage.of("a")[-1].messages] == ["a", "did a", "And?"]


@both
@on_virtual_time
async def test_a_batch_goes_on_after_a_restart_with_its_room_and_its_order(
    kind: str, tmp_path: Path
) -> None:
    home = Home(kind, tmp_path)
    does = {f"t{n}": pause(10, "x") for n in range(7)}
    stage = Stage(many(*does, max_concurrent=2), does=does)
    async with home.open() as retinue:
        run = await retinue.spawn(stage.lead, "Go.")
        await asyncio.sleep(25)
    stage.most = 0
    async with home.open(agents=[stage.lead]) as retinue:
        output = await played(retinue, run)
    assert [line["output"] for line in output.result["results"]] == [
        f"sum of t{n}" for n in range(7)
    ]
    assert stage.most == 2
    assert len(stage.of("t0")) == 2, "what had ended is not run again"


@both
@on_virtual_time
async def test_what_was_cut_before_a_restart_can_be_read_after_it(
    kind: str, tmp_path: Path
) -> None:
    home = Home(kind, tmp_path)
    stage = Stage(one("a"), pause(20, "end"), sums={"a": "é" * 4_000})
    async with home.open() as retinue:
        run = await retinue.spawn(stage.lead, "Go.")
        await asyncio.sleep(10)
    async with home.open(agents=[stage.lead]) as retinue:
        output = await played(retinue, run)
        where = output.result["output"].rsplit(" ", 1)[1].rstrip(")")
        assert (await retinue.artifact(where)).decode() == "é" * 4_000


@both
@on_virtual_time
async def test_depth_and_tools_are_the_same_after_a_restart(kind: str, tmp_path: Path) -> None:
    home = Home(kind, tmp_path)
    does = {"a": [one("b")], "b": [pause(20, one("c")), "end"]}
    stage = Stage(one("a", allowed_tools=["look_up"]), does=does)
    async with home.open() as retinue:
        run = await retinue.spawn(stage.lead, "Go.")
        await asyncio.sleep(10)
    again = Stage(does=does)
    async with home.open(agents=[again.lead]) as retinue:
        output = await played(retinue, run)
    assert again.offered("b") == {"look_up", "artifact"} | NESTING < PLAIN | NESTING
    assert sorted(output.below) == ["a", "b"]


@both
@on_virtual_time
async def test_executions_of_an_earlier_process_count(kind: str, tmp_path: Path) -> None:
    home = Home(kind, tmp_path)
    stage = Stage(many("a", "b"), pause(20, many("c", "d")), one("e"), one("f"), max_executions=3)
    async with home.open() as retinue:
        run = await retinue.spawn(stage.lead, "Go.")
        await asyncio.sleep(10)
    again = Stage(*stage.lines, max_executions=3)
    async with home.open(agents=[again.lead]) as retinue:
        output = await played(retinue, run)
    assert sorted(output.below) == ["a", "b", "e"]
    assert output.told[1].text == f"{SPENT}2 of 3 executions are used, 2 more requested"
    assert output.told[3].text == f"{SPENT}3 of 3 executions are used, 1 more requested"


@both
@on_virtual_time
async def test_what_was_granted_in_an_earlier_process_and_is_not_spent_yet_is_not_granted_again(
    kind: str, tmp_path: Path
) -> None:
    """The lead is steered away from its wait: its first helper still works, on all the tokens there
    are."""
    home = Home(kind, tmp_path)
    lines, does = (one("a"), one("b"), pause(200, one("c"))), {"a": pause(100, "x")}
    stage = Stage(*lines, does=does, max_total_tokens=40_000)
    async with home.open() as retinue:
        run = await retinue.spawn(stage.lead, "Go.")
        await asyncio.sleep(10)
    again = Stage(*lines, does=does, max_total_tokens=40_000)
    async with home.open(agents=[again.lead]) as retinue:
        await asyncio.sleep(10)
        await retinue.send(run, "Never mind.", steer=True)
        output = await played(retinue, run)
    assert output.told[1].text == f"{SPENT}40000 of 40000 tokens are used or granted"
    assert sorted(output.below) == ["a", "c"], "what it did not spend is there for the next one"


@both
@on_virtual_time
async def test_time_goes_on_while_no_process_runs(kind: str, tmp_path: Path) -> None:
    home = Home(kind, tmp_path)
    stage = Stage(one("a"), one("b"), does={"a": pause(20, "x")}, max_total_time=60)
    async with home.open() as retinue:
        run = await retinue.spawn(stage.lead, "Go.")
        await asyncio.sleep(10)
    await asyncio.sleep(1_000)
    async with home.open(agents=[stage.lead]) as retinue:
        output = await played(retinue, run)
    assert (output.below["a"].state, output.below["a"].stop) == ("timed_out", "deadline")
    assert output.told[1].text.startswith(SPENT) and output.told[1].text.endswith(
        " of 60 seconds are used"
    )
    assert sorted(output.below) == ["a"]


@pytest.mark.parametrize("new_program", [False, True])
@on_virtual_time
async def test_a_death_at_any_moment_around_a_call_costs_no_execution_and_gives_none_away(
    new_program: bool, tmp_path: Path
) -> None:
    for passes in range(0, 40, 2):
        home = Home("memory", tmp_path)
        lines = (pause(1, [one("a"), many("b", "c")]), many("d", "e"))
        settings: Any = {"max_executions": 4, "max_total_tokens": 10**6}
        stage = Stage(*lines, **settings)
        async with AsyncExitStack() as dead:
            retinue = await dead.enter_async_context(home.open())
            run = await retinue.spawn(stage.lead, "Go.")
            await asyncio.sleep(1)
            for _ in range(passes):
                await asyncio.sleep(0)
            again = Stage(*lines, **settings) if new_program else stage
            retinue = await dead.enter_async_context(home.open(agents=[again.lead]))
            output = await played(retinue, run)
        assert sorted(output.below) == ["a", "b", "c"], passes
        assert output.told[2].text == f"{SPENT}3 of 4 executions are used, 2 more requested"
        assert all(o.state == "completed" for o in output.below.values())


class Family:
    """A tree of helpers that is drawn from a seed: the same whenever and wherever it is asked."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        r = random.Random(seed)
        self.settings: dict[str, Any] = {
            "max_executions": r.choice([None, 3, 8, 20]),
            "max_total_tokens": r.choice([None, 20_000, 60_000, 200_000]),
            "max_depth": r.choice([3, 4]),
        }

    def lead(self) -> Agent:
        families = [family("subagent", **self.settings)]
        return Agent("lead", model=Scripted(self.say, name="m"), tools=TOOLS, families=families)

    async def say(self, request: ModelRequest) -> Any:
        r = random.Random(f"{self.seed} {request.path} {request.turn} {request.purpose}")
        await asyncio.sleep(r.choice([0, 0, 1, 5]))
        if request.purpose != "turn" or request.turn >= 4 or r.random() < 0.15:
            return "x" * r.randint(1, 2_000)
        return [self.ask(r, f"{request.path}.{request.turn}.{n}") for n in range(r.randint(1, 3))]

    def ask(self, r: random.Random, name: str) -> Any:
        kind = r.random()
        if kind < 0.3:
            return call("write_down", text="x" * r.randint(1, 2_000))
        if kind < 0.65:
            return one(name)
        tasks = [
            task(f"{name}.{n}", max_turns=r.choice([None, 1, 2])) for n in range(r.randint(1, 3))
        ]
        return many(*tasks, max_concurrent=r.randint(1, 3), fail_fast=r.random() < 0.3)


async def everybody(retinue: Retinue, run: str) -> list[Outcome]:
    end = await retinue.outcome(run)
    assert end is not None
    below = [await everybody(retinue, c.id) for c in end.children]
    return [end, *(o for part in below for o in part)]


@pytest.mark.parametrize("seed", range(14))
@on_virtual_time
async def test_random_trees_stay_within_their_quotas_through_random_deaths(
    seed: int, tmp_path: Path
) -> None:
    home, tree_family, r = (
        Home("sqlite" if seed % 7 == 0 else "memory", tmp_path),
        Family(seed),
        random.Random(seed),
    )
    async with AsyncExitStack() as dead:
        retinue = await dead.enter_async_context(home.open())
        lead = tree_family.lead()
        run = await retinue.spawn(lead, "Go.")
        for _ in range(r.randint(0, 3)):
            await asyncio.sleep(r.random() * 8)
            for _ in range(r.randint(0, 12)):
                await asyncio.sleep(0)
            lead = tree_family.lead() if r.random() < 0.5 else lead
            retinue = await dead.enter_async_context(home.open(agents=[lead]))
        assert (await retinue.wait(run)) is not None
        _, *helpers = await everybody(retinue, run)
        assert await retinue.verify() == []
    executions, tokens = (
        tree_family.settings["max_executions"],
        tree_family.settings["max_total_tokens"],
    )
    assert executions is None or len(helpers) <= executions
    assert tokens is None or sum(o.usage.tokens for o in helpers) <= tokens


@on_virtual_time
async def test_the_random_trees_reach_their_quotas(tmp_path: Path) -> None:
    reached = 0
    for seed in range(14):
        tree_family = Family(seed)
        async with Home("memory", tmp_path).open() as retinue:
            outcome = await retinue.run(tree_family.lead(), "Go.")
            reached += (
                len(await everybody(retinue, outcome.id)) - 1
                == tree_family.settings["max_executions"]
            )
    assert reached >= 5
