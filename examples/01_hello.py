"""One agent, one run: the smallest program."""

import asyncio

from retinue import Agent, Retinue
from retinue.testing import Scripted


async def main() -> None:
    greeter = Agent("greeter", "Greet people.", model=Scripted(["Hello, world."]))
    async with Retinue() as retinue:
        outcome = await retinue.run(greeter, "Say hello.")
    print(outcome.text)
    print(f"{outcome.state}: {outcome.usage.turns} turn, {outcome.usage.tokens} tokens")


asyncio.run(main())
