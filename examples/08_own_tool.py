"""A tool is a function: its signature is the schema, its docstring the description. Mistakes become
results the model can act on."""

import asyncio

from retinue import Agent, Ask, AssistantMessage, Retinue, TextQuestion, ToolResult, tool
from retinue.testing import Scripted, call


@tool(restart="pure")  # may be run again after a crash; by default a tool is never repeated
def count(item: str) -> int | ToolResult:
    """How many there are of an item."""
    return 12 if item == "apples" else ToolResult(text=f"There are no {item}.", error=True)


@tool
async def order(item: str, n: int = 1) -> ToolResult | Ask:
    """Order an item; more than ten need an answer from a person."""
    return Ask(question=f"Order {n} {item}?") if n > 10 else ToolResult(text=f"Ordered {n} {item}.")


async def main() -> None:
    wrong = [call("count", item="pears"), call("order", item="pears", n="many")]
    script = Scripted(
        [call("count", item="apples"), *wrong, call("order", item="pears", n=40), "Done."]
    )
    keeper = Agent("keeper", "Keep the store.", model=script, tools=[count, order])
    async with Retinue() as retinue:
        run = await retinue.spawn(keeper, "See to the pears.")
        async for question in retinue.questions(run, live=True):
            if isinstance(question, TextQuestion):
                await retinue.answer(question, f"{question.text} Yes.")
        for message in await retinue.messages(run):
            calls = message.calls if isinstance(message, AssistantMessage) else ()
            text = message.text or ", ".join(f"{c.name}({c.arguments_json})" for c in calls)
            print(f"{type(message).__name__.removesuffix('Message').lower():<10} {text}")


asyncio.run(main())
