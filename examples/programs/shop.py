"""Dependencies belong to the runtime, facts about one run are its `meta`, and a hook says no."""

import asyncio
from dataclasses import dataclass, field

from retinue import Agent, Context, HookContext, Hooks, Refuse, Retinue, ToolCall, tool


@dataclass
class Shop:
    prices: dict[str, float]
    sold: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@tool(restart="pure", risk="read", quick=True)
def price(ctx: Context[Shop], item: str, n: int = 1) -> float:
    """What n of an item cost."""
    return ctx.deps.prices[item] * n


@tool(risk="write")
async def sell(ctx: Context[Shop], item: str) -> str:
    """Sell one of an item."""
    ctx.deps.sold.append((ctx.meta["customer"], item))
    return "Sold."


def no_tobacco(ctx: HookContext[Shop], call: ToolCall) -> Refuse | None:
    is_tobacco = call.arguments.get("item") == "cigar"
    return Refuse(reason="We do not sell tobacco.") if is_tobacco else None


keeper = Agent(
    "keeper", "Keep the shop.", model="openai:gpt-5", deps_type=Shop, tools=[price, sell]
)


async def main() -> None:
    shop, hooks = Shop({"apple": 0.40, "cigar": 9.00}), Hooks(before_tool=no_tobacco)
    async with Retinue("shop.db", deps=shop, agents=[keeper], hooks=[hooks]) as retinue:
        wish = "An apple and a cigar."
        print((await retinue.run(keeper, wish, meta={"customer": "ada"})).text, shop.sold)
        async for run in retinue.runs(state="failed", meta={"customer": "ada"}, limit=10):
            print(run.created_at, run.task)


if __name__ == "__main__":
    asyncio.run(main())
