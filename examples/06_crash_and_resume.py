"""A process crashes. The next one finds the log and continues; each result arrives once."""

import asyncio
import os
import subprocess
import sys
import tempfile

from retinue import Actions, Agent, Context, ModelRequest, run_sync, tool
from retinue.testing import Scripted, call


async def work(request: ModelRequest) -> str:
    part = request.messages[0].text
    await asyncio.sleep(int(part[-1]) / 10)
    if part == "part 3" and sys.argv[-1] == "first":
        print("  the power fails", flush=True)
        os._exit(9)
    print(f"  {part} is worked on", flush=True)
    return f"{part} is done"


@tool(restart="keyed", format_results=lambda ended: ", ".join(child.ending.text for child in ended))
def give_out(context: Context) -> Actions:
    return context.spawn_actions(worker, "part 1", "part 2", "part 3", format_results=True)


worker = Agent("worker", model=Scripted(work, name="w"))
script = Scripted(lambda q: q.messages[-1].text if q.turn else call("give_out"), name="l")
lead = Agent("lead", model=script, tools=[give_out], staff=[worker])

if len(sys.argv) > 1:
    # one key, one run, however often
    outcome = run_sync(lead, "Do all parts.", store=sys.argv[1], key="all parts")
    print(f"  {outcome.text}")
else:
    with tempfile.TemporaryDirectory() as folder:
        for start in ("first", "second"):
            print(f"{start} start", flush=True)
            subprocess.run([sys.executable, __file__, f"{folder}/retinue.db", start])
