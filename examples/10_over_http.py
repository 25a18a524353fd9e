"""A model over HTTP: here a fake provider on loopback; with a key in the environment, any real one
by its name."""

import asyncio

from retinue import Agent, Retinue, tool
from retinue.models.catalog import Catalog
from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import FakeLLM


@tool(restart="pure", risk="read")
def capital(country: str) -> str:
    """The capital of a country."""
    return {"France": "Paris", "Peru": "Lima"}.get(country, "unknown")


async def main() -> None:
    both = [call("capital", country="France"), call("capital", country="Peru")]
    async with FakeLLM([both, "Paris and Lima."]) as llm:
        catalog = Catalog({"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": llm.url})
        guide = Agent(
            "guide", "Answer from the tool.", model="anthropic:claude-sonnet-5-5", tools=[capital]
        )
        async with Retinue(models=catalog) as retinue:
            outcome = await retinue.run(guide, "Which are the capitals of France and Peru?")
        print(outcome.text)
        print(f"{outcome.model}: {outcome.usage.tokens} tokens, ${outcome.usage.usd:.6f}")


asyncio.run(main())
