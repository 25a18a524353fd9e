"""Fork: two runs continue one conversation, each in its own way. The shared part is not copied."""

import asyncio

from retinue import Agent, ModelRequest, Retinue
from retinue.testing import Scripted


def think(request: ModelRequest) -> str:
    task, n_known = request.messages[-1].text, len(request.messages) - 1
    if "cache" in task:
        return (
            f"Keep the last 100 answers: 3x faster, 40 MB. (I continued from {n_known} messages.)"
        )
    if "index" in task:
        return f"Index the second column: 9x faster, 2 MB. (I continued from {n_known} messages.)"
    return "The query reads 2 million rows to find 12."


async def main() -> None:
    analyst = Agent("analyst", "Find out why it is slow.", model=Scripted(think))
    async with Retinue() as retinue:
        base = await retinue.run(analyst, "Why is the report slow?")
        print(f"found:   {base.text}")
        ways = ("a cache", "an index")
        forks = [await retinue.fork(base.id, f"Try this: {way}.") for way in ways]
        for way, outcome in zip(ways, await asyncio.gather(*map(retinue.wait, forks)), strict=True):
            print(f"{way:<8} {outcome.text}")
        print(
            f"the base still has {len(await retinue.messages(base.id))} messages, each fork has 4"
        )


asyncio.run(main())
