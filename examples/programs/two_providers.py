"""Two providers, three settings, a server of one's own with its price, and a fallback."""

import asyncio
import os

from retinue import Agent, ModelSettings, Price, Provider, Retinue, Retry

brave = ModelSettings(temperature=1.0, max_output=2_000)
careful = ModelSettings(thinking=8_000, max_output=12_000)
exact = ModelSettings(temperature=0.0, seed=7)

poet = Agent("poet", "Write one verse.", model="house:large", settings=brave)
critic = Agent(
    "critic",
    "Pick the best verse.",
    model="anthropic:claude-opus-5-5",
    settings=careful,
    options={"retry": Retry(attempts=3, then="fail")},
)
printer = Agent("printer", "Set it in capitals.", model="house:small", settings=exact)


async def main() -> None:
    house = Provider(
        base_url=os.environ["HOUSE_URL"],
        api_key="none",
        dialect="openai-chat",
        price=Price(input=0.10, output=0.40),
    )
    async with Retinue(providers={"house": house}) as retinue:
        verses = await retinue.gather(poet, *["A verse about rain."] * 3, at_once=2)
        best = await retinue.run(critic, "\n---\n".join(verses.results))
        print((await retinue.run(printer, best.unwrap())).text)
        print(f"chosen by {best.model}, ${best.tree_usage.usd:.3f}")


if __name__ == "__main__":
    asyncio.run(main())
