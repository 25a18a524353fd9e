"""For the examples: run an agent on SQLite in a temporary folder; print each child that ends, then
the whole tree."""

import sys
import tempfile
from pathlib import Path

from retinue import Agent, Retinue, RunTree
from retinue.events import RunEnded

COLOURS = {"completed": 32, "incomplete": 33} if sys.stdout.isatty() else {}


async def show(agent: Agent, task: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Retinue(Path(folder) / "retinue.db") as retinue:
            run = await retinue.spawn(agent, task)
            async for event in retinue.stream(run, tree=True):
                if isinstance(event, RunEnded) and event.depth == 1:
                    print(f"  {paint(event.state)} {event.label}", flush=True)
            text = outcome.text if (outcome := await retinue.outcome(run)) else ""
            print(f"\n{text}\n\n{'run':<36}{'state':<11}{'tokens':>9}{'seconds':>9}")
            await draw(retinue, await retinue.tree(run), "", "")


async def draw(retinue: Retinue, node: RunTree, branch: str, below: str) -> None:
    """A run and those below it; tokens include the children's, seconds are those of the work."""
    end = await retinue.outcome(node.id)
    assert end is not None
    seconds = (end.ended_at - (end.started_at or end.ended_at)).total_seconds()
    print(f"{branch + node.label:<36}{paint(node.state)}{end.tree_tokens:>9,}{seconds:>9.2f}")
    for child in node.children:
        last = child is node.children[-1]
        branch, rest = ("└─ ", "   ") if last else ("├─ ", "│  ")
        await draw(retinue, child, below + branch, below + rest)


def paint(state: str) -> str:
    return f"\033[{COLOURS.get(state, 31)}m{state:<11}\033[0m" if COLOURS else f"{state:<11}"
