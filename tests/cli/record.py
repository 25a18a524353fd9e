"""Records what a watcher is told of real runs, on virtual time: `python -m tests.cli.record` writes
the fixtures again.

Each line is an item of `retinue.host.tree_items` as JSON. Terminal and dashboard are tested on the
same files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from retinue import Agent, Lane, ModelUnavailable, Retinue, tool
from retinue.core.spec import Retry
from retinue.core.values import ModelInfo
from retinue.host import follow as inside
from retinue.host import tree_items
from retinue.testing import MemoryStore, Scripted, VirtualClock, call, run_virtual
from retinue.tools.builtin.builtin_tool import Builtin, ToolArguments
from tests.api.scripted_agents import hiring

FOLDER = Path(__file__).parent / "fixtures"
PRICED = {"price_in": 3_000, "price_out": 15_000}


def agent(
    name: str,
    script: Any,
    *,
    seconds: float = 1.0,
    price: dict[str, int] | None = None,
    **fields: Any,
) -> Agent:
    info = ModelInfo(name=f"{name}-model", **(PRICED if price is None else price))
    return Agent(name, model=Scripted(script, info=info, delay=seconds), **fields)


def opened(store: MemoryStore, clock: VirtualClock | None = None, **options: Any) -> Retinue:
    return Retinue(store, clock=clock or VirtualClock(), workspace="/", **options)


@tool(restart="pure")
async def look(path: str) -> str:
    """Look at a file."""
    await asyncio.sleep(2)
    return f"{path} has 12 lines"


async def follow(
    retinue: Retinue,
    run: str,
    into: list[tree_items.TreeItem],
    deltas: bool = True,
    after: int = 0,
) -> None:
    async for event in inside.follow(retinue, run, after, deltas=deltas):
        if isinstance(event.value, tree_items.StepNews):
            into.extend(event.value.items())
        else:
            into.append(event.value)


async def tree(items: list[tree_items.TreeItem]) -> None:
    """A parent, two children in a lane of one, and a grandchild; everything goes well."""

    def script(q: Any) -> Any:
        return call("look", path="docker.py") if q.turn == 0 else "5 files, 4 key types"

    leaf = agent("reader", script, tools=[look])
    middle = agent(
        "areas",
        lambda q: call("hire", tasks=["read it"]) if q.turn == 0 else "## Areas\n\nAll is clear.",
        tools=[hiring(leaf, label="reader")],
        staff=[leaf],
    )
    lane = (Lane(name="one", size=1),)
    lead = agent(
        "lead",
        lambda q: call("hire", tasks=["agents", "models"]) if q.turn == 0 else "The map.",
        tools=[hiring(middle, lanes=lane, max_turns=10)],
        staff=[middle],
    )
    async with opened(MemoryStore()) as retinue:
        run = await retinue.spawn(lead, "map this repository")
        await follow(retinue, run, items)


async def failures(items: list[tree_items.TreeItem]) -> None:
    """One child fails, one is out of time, one is out of turns, one has no known price and
    completes."""

    def bad(q: Any) -> Any:
        task = q.messages[0].text
        if task == "slow":
            return call("look", path="a.py")
        if task == "fails":
            raise ValueError("cannot read \x1b[31mthat\x1b[0m\nat all")
        return call("look", path="b.py") if task == "turns" else "fine"

    child = agent("worker", bad, tools=[look], price={})
    lead = agent(
        "lead",
        lambda q: (
            [
                call("hire", tasks=["fails", "well"]),
                call("hire_slow", tasks=["slow"]),
                call("hire_short", tasks=["turns"]),
            ]
            if q.turn == 0
            else "Two of four."
        ),
        tools=[
            hiring(child),
            hiring(child, "hire_slow", timeout_ms=5_000),
            hiring(child, "hire_short", max_turns=2),
        ],
        staff=[child],
    )
    async with opened(MemoryStore()) as retinue:
        run = await retinue.spawn(lead, "try four ways")
        await follow(retinue, run, items)


async def cancel(items: list[tree_items.TreeItem]) -> None:
    """A parent of three is cancelled while one of them is done."""

    async def work(q: Any) -> str:
        await asyncio.sleep(1 if q.messages[0].text == "quick" else 100)
        return "counted"

    child = agent("worker", work)
    lead = agent(
        "lead",
        lambda q: call("hire", tasks=["quick", "long", "longer"]) if q.turn == 0 else "never",
        tools=[hiring(child)],
        staff=[child],
    )
    async with opened(MemoryStore()) as retinue:
        run = await retinue.spawn(lead, "count")
        watching = asyncio.create_task(follow(retinue, run, items))
        await asyncio.sleep(20)
        await retinue.cancel(run)
        await watching


class Note(ToolArguments):  # type: ignore[misc]
    path: str


class Scribe(Builtin[Note]):
    name, description, Args = "scribe", "Write a note.", Note
    restart, risk, subject = "unsafe", "write", "path"

    async def call(self, caller: Any, args: Note) -> Any:
        from retinue import ToolResult

        return ToolResult(text=f"wrote {args.path}")


async def questions(items: list[tree_items.TreeItem]) -> None:
    """A child asks for a permission, another asks in words; both are answered."""
    from retinue.tools.builtin.ask import AskTool

    def work(first: Any) -> Any:
        return lambda q: f"told: {q.messages[-1].text}" if q.turn else first

    writer = agent("config", work(call("scribe", path="docs/A.md")), tools=[Scribe()])
    chooser = agent("chooser", work(call("ask", question="Which one?")), tools=[AskTool()])
    first = [call("hire", tasks=["write"]), call("consult", tasks=["choose"])]
    lead = agent(
        "lead",
        lambda q: first if q.turn == 0 else "Written.",
        tools=[hiring(writer), hiring(chooser, "consult")],
        staff=[writer, chooser],
    )
    async with opened(MemoryStore()) as retinue:
        run = await retinue.spawn(lead, "write it down", questions="ask")
        watching = asyncio.create_task(follow(retinue, run, items))
        await asyncio.sleep(30)
        for question in await retinue.open_questions(run):
            if question.kind == "permission":
                await retinue.decide(question.id, True, by="a person")
            else:
                await retinue.answer(question.run, "the second")
            await asyncio.sleep(5)
        await watching


async def retries(items: list[tree_items.TreeItem]) -> None:
    """The provider asks for patience twice, then answers."""
    tried = [0]

    def work(q: Any) -> Any:
        tried[0] += 1
        if tried[0] < 3:
            raise ModelUnavailable("slow down", kind="rate_limit", retry_after=12.0)
        return "at last"

    lead = agent("lead", work)
    async with opened(MemoryStore()) as retinue:
        run = await retinue.spawn(lead, "be patient", retry=Retry(attempts=4))
        await follow(retinue, run, items)


async def restart(items: list[tree_items.TreeItem]) -> None:
    """The process goes away in the middle; the next one goes on."""
    child = agent(
        "worker", lambda q: call("look", path="a.py") if q.turn < 3 else "read it all", tools=[look]
    )
    lead = agent(
        "lead",
        lambda q: call("hire", tasks=["read"]) if q.turn == 0 else "Done after all.",
        tools=[hiring(child)],
        staff=[child],
    )
    clock, store = VirtualClock(), MemoryStore()
    async with opened(store, clock) as retinue:
        run = await retinue.spawn(lead, "survive")
        watching = asyncio.create_task(follow(retinue, run, items))
        await asyncio.sleep(6)
        watching.cancel()
    seq = max(item.seq for item in items if isinstance(item, tree_items.Stepped))
    async with opened(store.survivor(), clock, agents=[lead]) as retinue:
        await follow(retinue, run, items, deltas=False, after=seq)


SCENES: dict[str, Callable[[list[tree_items.TreeItem]], Awaitable[None]]] = {
    f.__name__: f for f in (tree, failures, cancel, questions, retries, restart)
}


def record(name: str) -> list[tree_items.TreeItem]:
    items: list[tree_items.TreeItem] = []
    run_virtual(SCENES[name](items))  # type: ignore[arg-type]
    return items


def load(name: str) -> list[tree_items.TreeItem]:
    decode = msgspec.json.Decoder(tree_items.TreeItem).decode
    return [decode(line) for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines()]


def main() -> None:
    for name in SCENES:
        lines = [msgspec.json.encode(item) for item in record(name)]
        (FOLDER / f"{name}.jsonl").write_bytes(b"\n".join(lines) + b"\n")


if __name__ == "__main__":
    main()
