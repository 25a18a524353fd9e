"""A limit that asks: at its budget the whole tree waits until a person has decided."""

import asyncio

from retinue import Agent, Budget, BudgetQuestion, Retinue

analyst = Agent(
    "analyst",
    "Analyse the market.",
    model="anthropic:claude-opus-5-5",
    families=["delegate"],
    budget=Budget(usd=1.00, on_limit="ask"),
)


async def main() -> None:
    async with Retinue("market.db", agents=[analyst]) as retinue:
        run = await retinue.spawn(analyst, "Is there room for a third supplier?", key="third")
        async for question in retinue.questions(run, live=True):
            if isinstance(question, BudgetQuestion):
                spent = question.spending.spent
                more = await asyncio.to_thread(input, f"Spent ${spent.usd:.2f}. Add dollars: ")
                if more:
                    await retinue.add_budget(question.run, usd=float(more))
                else:
                    await retinue.decide(question, False, reason="It must do with what it has.")
        outcome = await retinue.wait(run)
        print(f"{outcome.state}: {outcome.text}")


if __name__ == "__main__":
    asyncio.run(main())
