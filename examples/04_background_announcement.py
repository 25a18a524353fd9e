"""In the background: a lead starts a child and goes on; the child's end is announced to a person, and mailed to the lead."""

import asyncio

from retinue import Agent, Caller, Orders, Origin, Retinue, tool
from retinue.testing import Scripted, call


class Console:
    """A channel is anything that can send a delivery; it is tried again until it takes it."""

    async def send(self, delivery) -> None:
        print(f"[to {delivery.origin.user}] {delivery.text}")


@tool(restart="keyed")
def start_build(caller: Caller, branch: str) -> Orders:
    """Build a branch in the background."""
    return caller.spawn(builder, f"Build {branch}.", join="none", announce=True, answer="The build has started.")


def talk(request):
    said = request.messages[-1]
    if request.turn == 0:
        return call("start_build", branch="main")
    if "The build has started." in said.text:
        return "The build is under way; I write the notes meanwhile."
    return f"Notes are done. I was told: {said.text.splitlines()[1]}"


builder = Agent("builder", model=Scripted(["Built main: 312 files, no errors."], name="builder", seconds=0.2))
lead = Agent("lead", model=Scripted(talk, name="lead"), tools=[start_build], staff=[builder], options={"orphans": "wait"})


async def main() -> None:
    async with Retinue(channels={"console": Console()}) as retinue:
        outcome = await retinue.run(lead, "Release.", origin=Origin(channel="console", user="ada"))
        print(f"[lead] {outcome.text}")


asyncio.run(main())
