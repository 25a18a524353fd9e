"""Fan out and collect: one reader for each of the largest Python files in a folder."""

import asyncio
import os
import sys
from pathlib import Path

from show import show

from retinue import Agent, Caller, Lane, Orders, tool
from retinue.testing import Scripted, call

FOLDER = Path([os.getenv("DEMO") or Path(__file__).parents[1] / "src/retinue", *sys.argv[1:]][-1])


def read_file(path: str) -> str:
    return (FOLDER / path).read_text(errors="replace")


def read(request):  # a reader's model: it asks for the file, then reports what is in it
    name, text = request.messages[0].text, request.messages[-1].text
    doc = [*text.split('"""', 2), "", ""][1].split("\n")[0]
    size, n = len(text.splitlines()), text.count("def ")
    row = f"{name:<30}{size:>5} lines{n:>4} functions  {doc[:56]}"
    return row if request.turn else call("read_file", path=name)


@tool(restart="keyed", compose=lambda ended: "\n".join(child.ending.text for child in ended))
def read_folder(caller: Caller) -> Orders:
    files = sorted(FOLDER.rglob("*.py"), key=lambda file: -file.stat().st_size)[:12]
    names = [file.relative_to(FOLDER).as_posix() for file in files]
    four, none = (Lane(name="readers", size=4),), f"There are no Python files in {FOLDER}."
    spawns = tuple(caller.order(reader, n, label=n, lanes=four, compose=True) for n in names)
    return Orders(spawns=spawns, answer=None if spawns else none)


reader = Agent("reader", model=Scripted(read, name="reader", seconds=0.15), tools=[read_file])
script = Scripted(lambda q: q.messages[-1].text if q.turn else call("read_folder"), name="lead")
lead = Agent("lead", model=script, tools=[read_folder], staff=[reader])
asyncio.run(show(lead, "What is in this folder?"))
