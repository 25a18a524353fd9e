"""Dependencies belong to the runtime, facts about one run are its `meta`."""

import asyncio
from dataclasses import dataclass, field

from retinue import Agent, Context, Retinue, tool


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


keeper = Agent(
    "keeper", "Keep the shop.", model="openai:gpt-5", deps_type=Shop, tools=[price, sell, "fetch"]
)


async def main() -> None:
    shop = Shop({"apple": 0.40})
    async with Retinue("shop.db", deps=shop, agents=[keeper]) as retinue:
        print((await retinue.run(keeper, "An apple.", meta={"customer": "ada"})).text)
        async for run in retinue.runs(state="failed", meta={"customer": "ada"}, limit=10):
            print(run.created_at, run.task)


if __name__ == "__main__":
    asyncio.run(main())
