"""A research assistant whose helpers work in parallel, in pydantic-ai."""

import asyncio
import sys
from dataclasses import dataclass

from pydantic_ai import Agent, RunContext, UsageLimits


@dataclass
class Finding:
    """What a helper found."""

    fact: str
    source: str


MODEL = "openai-chat:gpt-5"
helper = Agent(MODEL, output_type=Finding, instructions="Answer one question.")
lead = Agent(MODEL, instructions="Research, then answer.")
limits = UsageLimits(total_tokens_limit=1_000_000)


@lead.tool
async def research(ctx: RunContext[None], questions: list[str]) -> str:
    """Ask a helper each question."""
    at_once = asyncio.Semaphore(3)

    async def ask(question: str) -> Finding:
        async with at_once:
            return (await helper.run(question, usage=ctx.usage, usage_limits=limits)).output

    result = await asyncio.gather(*(ask(question) for question in questions))
    return "\n".join(f"{finding.fact} ({finding.source})" for finding in result)


async def main(question: str) -> None:
    print((await lead.run(question, usage_limits=limits)).output)


asyncio.run(main(sys.argv[1]))
