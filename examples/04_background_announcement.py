"""In the background: a lead starts a child and goes on; its end is announced to a person, and told
to the lead."""

import asyncio

from retinue import Agent, Caller, Delta, Orders, Origin, Retinue, tool
from retinue.testing import Scripted, call


# a channel is anything that can send a delivery; it is tried again until the channel takes it
class Console:
    async def send(self, delivery) -> None:
        print(f"[to {delivery.origin.user}] {delivery.text}")


@tool(restart="keyed")
def start_build(caller: Caller, branch: str) -> Orders:
    return caller.spawn(
        builder, f"Build {branch}.", join="none", announce=True, answer="The build has started."
    )


def talk(request):
    text = request.messages[-1].text
    if request.turn == 0:
        return call("start_build", branch="main")
    return (
        "I go on meanwhile."
        if text == "The build has started."
        else f"I was told: {text.splitlines()[1]}"
    )


builder = Agent(
    "builder", model=Scripted(["Built main: 312 files, no errors."], name="b", seconds=0.5)
)
script = Scripted(talk, name="l", seconds=0.1)
lead = Agent(
    "lead", model=script, tools=[start_build], staff=[builder], options={"orphans": "wait"}
)


async def main() -> None:
    async with Retinue(channels={"console": Console()}) as retinue:
        run = await retinue.spawn(lead, "Release it.", origin=Origin(channel="console", user="ada"))
        async for item in retinue.stream(run):
            if isinstance(item, Delta):
                print(f"[lead] {item.text}")


asyncio.run(main())
