"""Work in the background with a webhook at its end. The program may be killed at any line and
started again: each build is done once, and told once."""

import asyncio
import os

from retinue import Agent, Context, Origin, Retinue, tool
from retinue.channels import Webhook

builder = Agent("builder", "Build the branch and report.", model="openai:gpt-5-mini")


@tool(restart="keyed")
async def start_build(ctx: Context, branch: str) -> str:
    """Start a build in the background; whoever asked is told when it is done."""
    run = await ctx.spawn(builder, f"Build {branch}.", label=branch, announce=True)
    return f"The build of {branch} has started as {run}."


lead = Agent("lead", "Release as told.", model="openai:gpt-5", tools=[start_build], staff=[builder])


async def main() -> None:
    hook = Webhook(os.environ["HOOK_URL"], os.environ["HOOK_SECRET"])
    async with Retinue("builds.db", agents=[lead], channels={"ci": hook}) as retinue:
        origin = Origin(channel="ci", user="ada")
        outcome = await retinue.run(
            lead, "Release 2.4.", origin=origin, key="release-2.4", children_on_end="keep"
        )
        print(outcome.text, flush=True)
        await retinue.settle(outcome.id)  # the builds and their announcements, too


if __name__ == "__main__":
    asyncio.run(main())
