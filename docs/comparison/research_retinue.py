"""A research assistant whose helpers work in parallel, in Retinue."""

import asyncio
import sys
from dataclasses import dataclass

from retinue import Agent, Budget, Context, Retinue, tool


@dataclass
class Finding:
    """What a helper found."""

    fact: str
    source: str


MODEL = "openai-chat:gpt-5"
helper = Agent("helper", "Answer one question.", output=Finding, model=MODEL)


@tool(restart="pure")
async def research(ctx: Context, questions: list[str]) -> str:
    """Ask a helper each question."""
    outcomes = await ctx.gather(helper, *questions, at_once=3)
    return "\n".join(f"{finding.fact} ({finding.source})" for finding in outcomes.results)


lead = Agent("lead", "Research, then answer.", tools=[research], staff=[helper], model=MODEL)


async def main(question: str) -> None:
    async with Retinue("research.db", agents=[lead]) as retinue:
        budget = Budget(tokens=1_000_000)
        outcome = await retinue.run(lead, question, key=question, budget=budget)
        print(outcome.unwrap())


asyncio.run(main(sys.argv[1]))
