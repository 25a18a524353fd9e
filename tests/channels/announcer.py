"""A program to be killed: a lead hires a child in the background, and the child's end is announced
to a webhook."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from retinue import Limits, Origin, Retinue
from retinue.channels.webhook import Webhook
from tests.api.scripted_agents import agent, lead_of
from tests.channels.receiver import SECRET

child = agent("child", ["built"])
lead = lead_of(child, 1, options={"children_on_end": "wait"}, join="none", announce=True)


async def main(store: str, url: str) -> None:
    channel = Webhook(url, SECRET)
    rules = Limits(delivery_base_ms=50)
    async with Retinue(
        Path(store), agents=[lead], channels={"hook": channel}, limits=rules
    ) as retinue:
        run = await retinue.spawn(lead, "Go.", key="one", origin=Origin(channel="hook", user="ada"))
        await retinue.wait(run)
        while [d async for d in retinue.deliveries(state=["pending", "sent"])]:
            await retinue.settle(timeout=120)
            await asyncio.sleep(0.01)
        lines = [f"{d.state} {d.attempts} {d.bounces}" async for d in retinue.deliveries()]
    await channel.close()
    sys.stdout.write(", ".join(lines))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
