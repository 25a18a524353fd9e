"""A process dies in the middle of its work. The next one finds the log and goes on; each result arrives once."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from retinue import Agent, Caller, Orders, Retinue, tool
from retinue.testing import Scripted, call

STORE, FIRST = Path(sys.argv[1]) if len(sys.argv) > 1 else None, "first" in sys.argv


def work(request):
    if FIRST and request.messages[0].text == "part 3":
        print("  part 3: the power fails", flush=True)
        os._exit(9)
    print(f"  {request.messages[0].text}: done", flush=True)
    return f"{request.messages[0].text} is done"


@tool(restart="keyed")
def hand_out(caller: Caller) -> Orders:
    return caller.spawn(worker, "part 1", "part 2", "part 3")


worker = Agent("worker", model=Scripted(work, name="w"))
lead = Agent("lead", model=Scripted(lambda q: q.messages[-1].text if q.turn else call("hand_out"), name="l"), tools=[hand_out], staff=[worker])
