"""Fan out and collect: one reader for each of the largest Python files in a folder."""

import asyncio
import os
import sys
from pathlib import Path

from show import show

from retinue import Actions, Agent, Context, Lane, ModelRequest, ToolCall, tool
from retinue.testing import Scripted, call

FOLDER = Path([os.getenv("DEMO") or Path(__file__).parents[1] / "src/retinue", *sys.argv[1:]][-1])


def read_file(path: str) -> str:
    return (FOLDER / path).read_text(errors="replace")


def read(request: ModelRequest) -> str | ToolCall:  # a reader asks for its file, then reports
    name, text = request.messages[0].text, request.messages[-1].text
    doc = [*text.split('"""', 2), "", ""][1].split("\n")[0]
    size = f"{len(text.splitlines()):>5} lines{text.count('def '):>4} functions"
    row = f"{name:<30}{size}  {doc[:56]}"
    return row if request.turn else call("read_file", path=name)


@tool(restart="keyed", format_results=lambda ended: "\n".join(child.ending.text for child in ended))
def read_folder(context: Context) -> Actions:
    files = sorted(FOLDER.rglob("*.py"), key=lambda file: -file.stat().st_size)[:12]
    how = {"lanes": (Lane(name="readers", size=4),), "format_results": True}
    names, none = [str(file.relative_to(FOLDER)) for file in files], "There are no Python files in"
    spawns = tuple(context.request(reader, n, label=n, **how) for n in names)
    return Actions(spawns=spawns, answer=None if spawns else f"{none} {FOLDER}.")


reader = Agent("reader", model=Scripted(read, name="reader", delay=0.15), tools=[tool(read_file)])
script = Scripted(lambda q: q.messages[-1].text if q.turn else call("read_folder"), name="lead")
lead = Agent("lead", model=script, tools=[read_folder], staff=[reader])
asyncio.run(show(lead, "What is in this folder?"))
