"""A person in the loop: large orders wait for a yes, and a tool asks a question of its own. Stop
the program while it waits and start it again: it asks again, and nothing is ordered twice."""

import asyncio

from retinue import Agent, Context, PermissionQuestion, Retinue, TextQuestion, tool


@tool(restart="keyed", risk="write", approve=lambda call: call.arguments["n"] > 10)
def order(ctx: Context, item: str, n: int) -> str:
    """Order so many of an item."""
    return f"Ordered {n} {item}, receipt {ctx.key[-3:]}."


@tool(restart="pure")
async def choose_colour(ctx: Context, item: str) -> str:
    """Ask the customer for a colour."""
    colour = await ctx.ask(f"Which colour for the {item}?", choices=["red", "blue"])
    return f"The customer wants {colour}."


buyer = Agent("buyer", "Buy what is asked for.", model="openai:gpt-5", tools=[order, choose_colour])


async def main() -> None:
    async with Retinue("shop.db", agents=[buyer]) as retinue:
        run = await retinue.spawn(buyer, "Forty shirts, please.", questions="ask", key="shirts")
        async for question in retinue.questions(run, live=True):
            match question:
                case PermissionQuestion(call=call):
                    reply = await asyncio.to_thread(input, f"{call.name} {call.arguments}? [y/n] ")
                    await retinue.decide(question, reply == "y", by="ada")
                case TextQuestion(text=text, choices=choices):
                    reply = await asyncio.to_thread(input, f"{text} {', '.join(choices)} ")
                    await retinue.answer(question, reply, by="ada")
                case _:
                    pass
        print((await retinue.wait(run)).text)


if __name__ == "__main__":
    asyncio.run(main())
