"""In the background: a lead starts a child and continues; a person and the lead get its result."""

import asyncio

from retinue import Agent, Caller, Delta, Orders, Origin, Retinue, tool
from retinue.testing import Scripted, call

STARTED, BUILT = "The build has started.", "Built main: 312 files, no errors."


class Console:  # a channel sends deliveries; each is tried again until it is accepted
    async def send(self, delivery) -> None:
        print(f"[to {delivery.origin.user}] {delivery.text}")


@tool(restart="keyed")
def start_build(caller: Caller, branch: str) -> Orders:
    return caller.spawn(builder, f"Build {branch}.", join="none", announce=True, answer=STARTED)


def talk(request):
    text, second = request.messages[-1].text, [*request.messages[-1].text.splitlines(), ""][1]
    news = "I continue meanwhile." if text == STARTED else f"I got the result: {second}"
    return news if request.turn else call("start_build", branch="main")


builder = Agent("builder", model=Scripted([BUILT], name="b", seconds=0.5))
model, wait = Scripted(talk, name="l", seconds=0.1), {"orphans": "wait"}
lead = Agent("lead", model=model, tools=[start_build], staff=[builder], options=wait)


async def main() -> None:
    async with Retinue(channels={"console": Console()}) as retinue:
        run = await retinue.spawn(lead, "Release it.", origin=Origin(channel="console", user="ada"))
        async for item in retinue.stream(run):
            if isinstance(item, Delta):
                print(f"[lead] {item.text}")


asyncio.run(main())
