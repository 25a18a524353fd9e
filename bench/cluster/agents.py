"""What the workers of the benchmark drive: a lead with twenty children, an agent that answers at
once, and one that asks and waits."""

from __future__ import annotations

from typing import Any

from retinue import Actions, Agent, Context, tool
from retinue.testing import Scripted, call

CHILDREN = 20


def cluster_agents() -> list[Agent[Any, Any]]:
    @tool(restart="keyed")
    async def look_up(n: int) -> str:
        """Look something up."""
        return f"found {n}"

    child: Agent[Any, Any] = Agent(
        "child",
        "Work.",
        model=Scripted([call("look_up", n=1), call("look_up", n=2), "done"], name="child"),
        tools=[look_up],
    )

    @tool(restart="keyed")
    def fan_out(context: Context, n: int) -> Actions:
        """Have n parts done."""
        return context.spawn_actions(child, *[f"part {i}" for i in range(n)])

    lead: Agent[Any, Any] = Agent(
        "lead",
        "Lead.",
        model=Scripted([call("fan_out", n=CHILDREN), "all done"], name="lead"),
        tools=[fan_out],
        staff=[child],
    )
    quick: Agent[Any, Any] = Agent("quick", "Answer.", model=Scripted(["done"], name="quick"))
    slow: Agent[Any, Any] = Agent(
        "slow", "Take your time.", model=Scripted(["done"], name="slow", delay=20.0)
    )
    asker: Agent[Any, Any] = Agent(
        "asker",
        "Ask.",
        model=Scripted([call("ask", question="Which?"), "done"], name="asker"),
        tools=["ask"],
    )
    return [lead, child, quick, slow, asker]
