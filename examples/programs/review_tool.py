"""A tool of one's own hands files to reviewers; their results are values that its code sorts."""

import asyncio

from pydantic import BaseModel

from retinue import Agent, Context, Retinue, tool


class Verdict(BaseModel):
    path: str
    points: int
    advice: str


critic = Agent(
    "critic", "Judge one file.", model="openai:gpt-5-mini", tools=["read"], output=Verdict
)


@tool(restart="pure", risk="read")
async def weakest(ctx: Context, paths: list[str]) -> str:
    """Have each file judged; names the weakest two."""
    verdicts = await ctx.gather(critic, *paths, at_once=4, timeout=300)
    ranking = sorted(verdicts.results, key=lambda verdict: verdict.points)
    lines = [f"{verdict.path}: {verdict.advice}" for verdict in ranking[:2]]
    lines += [f"not judged: {outcome.error}" for outcome in verdicts.failed]
    return "\n".join(lines)


editor = Agent("editor", "Plan the work.", model="openai:gpt-5", tools=[weakest], staff=[critic])


async def main() -> None:
    async with Retinue("verdicts.db", agents=[editor]) as retinue:
        outcome = await retinue.run(editor, "Where do we begin?", key="week-1")
        print(outcome.text)


if __name__ == "__main__":
    asyncio.run(main())
