"""In the background: a lead starts a child and continues; a person and the lead get its result."""

import asyncio

from retinue import Actions, Agent, Context, Delivery, Origin, Retinue, tool
from retinue.events import TextDelta
from retinue.testing import Scripted, call

BEGUN, BUILT = "The build has started.", "Built main: 312 files, no errors."


class Console:  # a channel sends deliveries; each is tried again until it is accepted
    async def send(self, delivery: Delivery) -> None:
        print(f"[to {delivery.origin.user}] {delivery.text}")


@tool(restart="keyed")
def start_build(ctx: Context, branch: str) -> Actions:
    return ctx.spawn_actions(builder, f"Build {branch}.", join="none", announce=True, answer=BEGUN)


def reply(text: str) -> str:
    return "I continue meanwhile." if text == BEGUN else f"I got the result: {text.splitlines()[1]}"


builder = Agent("builder", model=Scripted([BUILT], name="b", delay=0.5))
build, wait = call("start_build", branch="main"), {"children_on_end": "wait"}
model = Scripted(lambda q: reply(q.messages[-1].text) if q.turn else build, name="l", delay=0.1)
lead = Agent("lead", model=model, tools=[start_build], staff=[builder], options=wait)


async def main() -> None:
    async with Retinue(channels={"console": Console()}) as retinue:
        run = await retinue.spawn(lead, "Release it.", origin=Origin(channel="console", user="ada"))
        async for event in retinue.stream(run):
            if isinstance(event, TextDelta):
                print(f"[lead] {event.text}")


asyncio.run(main())
