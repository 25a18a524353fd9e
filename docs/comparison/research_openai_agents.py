"""A research assistant whose helpers work in parallel, in openai-agents."""

import asyncio
import sys
from dataclasses import dataclass

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled


@dataclass
class Finding:
    """What a helper found."""

    fact: str
    source: str


MODEL = "gpt-5"
set_default_openai_api("chat_completions")
set_tracing_disabled(True)
helper = Agent(name="helper", instructions="Answer one question.", output_type=Finding, model=MODEL)


@function_tool
async def research(questions: list[str]) -> str:
    """Ask a helper each question."""
    at_once = asyncio.Semaphore(3)

    async def ask(question: str) -> Finding:
        async with at_once:
            result = await Runner.run(helper, question)
            return result.final_output_as(Finding)

    results = await asyncio.gather(*(ask(question) for question in questions))
    return "\n".join(f"{finding.fact} ({finding.source})" for finding in results)


lead = Agent(name="lead", instructions="Research, then answer.", tools=[research], model=MODEL)


async def main(question: str) -> None:
    result = await Runner.run(lead, question)
    print(result.final_output)


asyncio.run(main(sys.argv[1]))
