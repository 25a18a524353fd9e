"""A budget is never exceeded, and never ends in nothing: the last turn is paid for in advance."""

import asyncio

from retinue import Agent, Budget, ModelInfo, ModelRequest, Retinue, ToolCall, tool
from retinue.testing import Scripted, call


@tool(restart="pure")
def read_page(n: int) -> str:
    """Read a page of a long book."""
    return f"Page {n}. " + "It was a dark and stormy night. " * 20


def study(request: ModelRequest) -> str | ToolCall:
    pages = sum(m.text.startswith("Page ") for m in request.messages)
    if request.purpose == "final":
        return f"I read {pages} pages before my budget was spent: the nights are dark and stormy."
    return call("read_page", n=pages + 1)


async def main() -> None:
    model = Scripted(study, info=ModelInfo(name="small", max_output=300))
    student = Agent("student", "Read the whole book.", model=model, tools=[read_page])
    async with Retinue() as retinue:
        outcome = await retinue.run(student, "What happens in it?", budget=Budget(tokens=6_000))
    print(f"{outcome.state} ({outcome.stop}): {outcome.text}")
    print(f"{outcome.tree_usage.tokens:,} of 6,000 tokens in {outcome.usage.turns} turns")


asyncio.run(main())
