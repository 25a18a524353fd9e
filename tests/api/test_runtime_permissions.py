"""What a runtime permits holds for all of its runs, and what programs read of runs and runtimes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from retinue import Agent, History, NotFound, Permissions, Retinue, Usage, tool
from retinue.testing import Scripted, VirtualClock, call
from tests.api.scripted_agents import agent, last, on_virtual_time


@tool(restart="pure", quick=True)
def sell(item: str) -> str:
    """Sell an item."""
    return f"sold {item}"


async def test_no_run_has_more_than_its_runtime_permits() -> None:
    who = agent("a", lambda q: last(q) if q.turn else call("sell", item="x"), tools=[sell])
    async with Retinue(permissions=Permissions(rules=("deny: sell",))) as retinue:
        assert (await retinue.run(who, "Go.")).text.startswith("Denied: ")
        rules = Permissions(rules=("allow: sell",))
        assert (await retinue.run(who, "Go.", permissions=rules)).text.startswith("Denied: ")
    async with Retinue() as retinue:
        assert (await retinue.run(who, "Go.")).text == "sold x"


@on_virtual_time
async def test_an_outcome_has_datetimes_dollars_and_the_usage_of_its_tree() -> None:
    usage = Usage(input=100, output=20)
    worker = Agent("worker", model=Scripted(["done"], usage=usage, delay=2))

    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(worker, "Go.", meta={"customer": "ada"})
        info = await retinue.info(outcome.id)
        with pytest.raises(NotFound) as error:
            await retinue.info("none")
        health = await retinue.health()
    assert (error.value.kind, error.value.id) == ("run", "none")
    assert outcome.created_at.tzinfo is UTC and isinstance(outcome.ended_at, datetime)
    assert (outcome.ended_at - outcome.created_at).total_seconds() == 2
    assert outcome.tree_usage.replace(nanos=0) == outcome.usage.replace(nanos=0)
    assert outcome.tree_usage.is_exact and outcome.meta == {"customer": "ada"}
    assert (info.state, info.ended_at, info.usage) == ("completed", outcome.ended_at, outcome.usage)
    assert (info.parent, info.waiting_for, info.origin.user) == (None, None, "")
    assert health.ok and health.open_runs == 0


async def test_the_usage_of_a_tree_has_the_output_of_all_runs_below() -> None:
    worker = Agent("worker", model=Scripted(["done"], usage=Usage(input=100, output=20)))
    lead = Agent(
        "lead",
        model=Scripted([call("spawn_agents", tasks=[{"task": "a"}, {"task": "b"}]), "all done"]),
        families=["fanout"],
        staff=[worker],
    )
    async with Retinue() as retinue:
        outcome = await retinue.run(lead, "Go.")
        below = [await retinue.info(child.id) for child in outcome.children]
        tree = await retinue.tree(outcome.id)
    runs = [outcome.usage, *(info.usage for info in below)]
    assert len(runs) == 3
    assert outcome.tree_usage.output == sum(usage.output for usage in runs)
    assert outcome.tree_usage.input == sum(usage.input for usage in runs)
    assert next((d, n.agent) for d, n in tree.walk()) == (0, "lead")
    assert {info.parent for info in below} == {outcome.id}


def test_values_have_short_ways() -> None:
    assert History.all() == History(kind="fork") and History.none() == History()
    assert History.last(3) == History(kind="last", n=3)
    assert History.summary("x") == History(kind="summary", text="x")
    assert Usage(input=1).replace(output=2) == Usage(input=1, output=2)
    with pytest.raises(ValueError, match="output"):
        Usage().replace(output="many")
