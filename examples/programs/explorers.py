"""A family: the model itself decides what it hands to helpers."""

import asyncio

from retinue import Agent, Budget, Retinue, family

lead = Agent(
    "lead",
    "Find out how errors are handled in this code base. Send explorers, then sum up.",
    model="anthropic:claude-opus-5-5",
    tools=["read", "search", "list"],
    families=[family("fanout", max_tasks=6, explore_model="anthropic:claude-haiku-5-5")],
    budget=Budget(usd=2.00),
)


async def main() -> None:
    async with Retinue("explore.db", workspace="src") as retinue:
        outcome = await retinue.run(lead, "Where can an exception get lost?", key="lost")
        print(outcome.text)
        for child in outcome.children:
            print(f"  {child.label}: {child.state}")
        for depth, node in (await retinue.tree(outcome.id)).walk():
            print(f"{'  ' * depth}{node.label:<30}{node.state:<12}{node.usage.tokens:>9,}")


if __name__ == "__main__":
    asyncio.run(main())
