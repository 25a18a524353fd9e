"""A run that goes on in the conversation of another knows whom that has started: it sees, hears and
ends them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import Actions, Context, tool
from retinue.core.spec import SendMessage
from retinue.core.state import ending_of
from retinue.models.base import ModelRequest
from retinue.testing import call
from tests.api.scripted_agents import STORES, Home, agent, ended, hiring, on_virtual_time, texts

both = pytest.mark.parametrize("kind", STORES)


@tool
async def look(context: Context) -> str:
    """Say how the children are."""
    rows = [(spec.request.task, ending_of(run)) for spec, run in await context.children()]
    return ", ".join(
        f"{task} {'runs' if end is None else end.text or end.state}" for task, end in rows
    )


@tool(restart="keyed")
async def stop(context: Context, task: str) -> Actions:
    """End a child."""
    run_ids = [spec.id for spec, _ in await context.children() if spec.request.task == task]
    return Actions(cancels=tuple(run_ids), answer="Stopped.")


@tool(restart="keyed")
async def stop_run(context: Context, run: str) -> Actions:
    """End a run."""
    return Actions(cancels=(run,), answer="Stopped.")


@tool(restart="keyed")
async def tell(context: Context, task: str, text: str) -> Actions:
    """Write to a child."""
    run_ids = [spec.id for spec, _ in await context.children() if spec.request.task == task]
    return Actions(sends=tuple(SendMessage(to=id, text=text) for id in run_ids), answer="Told.")


def lead(*later: Any, name: str = "lead", tasks: tuple[str, ...] = ("slow", "quick")) -> Any:
    """It starts its children and ends; what it does when it goes on is said by `later`."""

    def work(request: ModelRequest) -> Any:
        return f"{request.messages[0].text} done"

    child = agent(f"child of {name}", work, seconds=100)

    def script(request: ModelRequest) -> Any:
        messages = [m for m in request.messages if type(m).__name__ == "AssistantMessage"]
        lines = [call("hire", tasks=list(tasks)), "started", *later]
        line = lines[min(len(messages), len(lines) - 1)]
        return line(request) if callable(line) else line

    tools = [hiring(child, join="none"), look, stop, stop_run, tell]
    return agent(name, script, tools=tools, staff=[child], options={"children_on_end": "keep"})


@both
@on_virtual_time
async def test_a_run_that_goes_on_sees_and_ends_the_children_of_the_one_before_it(
    kind: str, tmp_path: Path
) -> None:
    home = Home(kind, tmp_path)
    boss = lead(call("look"), call("stop", task="slow"), call("look"), "well")
    async with home.open(agents=[boss]) as retinue:
        first = await retinue.spawn(boss, "Go.")
        await ended(retinue, first)
        second = await retinue.resume(first)
        await ended(retinue, second)
        texts_read = [m.text for m in await retinue.messages(second)]
    assert "slow runs, quick runs" in texts_read
    assert "slow cancelled, quick runs" in texts_read
    assert not any("cancelled by its parent" in text for text in texts_read), (
        "it has done so itself"
    )


@both
@on_virtual_time
async def test_a_run_that_goes_on_hears_of_the_children_of_the_one_before_it(
    kind: str, tmp_path: Path
) -> None:
    home = Home(kind, tmp_path)
    boss = lead(slowly, "so be it")
    async with home.open(agents=[boss]) as retinue:
        first = await retinue.spawn(boss, "Go.")
        await ended(retinue, first)
        second = await retinue.resume(first)
        await asyncio.sleep(1)
    async with home.open(agents=[boss]) as retinue:
        outcome = await ended(retinue, second)
        text = "\n".join(m.text for m in await retinue.messages(second))
    assert outcome.ok
    assert [text.count(f"{task} done") for task in ("slow", "quick")] == [1, 1]


async def slowly(request: ModelRequest) -> str:
    await asyncio.sleep(300)
    return "I have thought about it."


@on_virtual_time
async def test_a_run_that_goes_on_ends_nobody_elses_children(tmp_path: Path) -> None:
    home, target = Home("memory", tmp_path), []
    boss = lead(lambda q: call("stop_run", run=target[0]), slowly, lambda q: texts(q)[-1])
    other = lead("x", name="other")
    async with home.open(agents=[boss, other]) as retinue:
        stranger = await retinue.spawn(other, "Go.")
        await ended(retinue, stranger)
        target.append((await retinue.tree(stranger)).children[0].id)
        first = await retinue.spawn(boss, "Go.")
        await ended(retinue, first)
        second = await retinue.resume(first)
        await asyncio.sleep(10)
        assert (await retinue.tree(target[0])).state == "thinking"
        await ended(retinue, second)
        assert any(
            "not a run that you can send to or cancel" in m.text
            for m in await retinue.messages(second)
        )


@on_virtual_time
async def test_a_cancel_of_a_run_that_goes_on_ends_what_the_ones_before_it_have_left(
    tmp_path: Path,
) -> None:
    home, boss = Home("memory", tmp_path), lead(slowly)
    async with home.open(agents=[boss]) as retinue:
        first = await retinue.spawn(boss, "Go.")
        await ended(retinue, first)
        second = await retinue.resume(first)
        await asyncio.sleep(1)
        assert (await retinue.cancel(second)).state == "cancelled"
        assert [c.state for c in (await retinue.tree(first)).children] == ["cancelled"] * 2
        assert not retinue._engine.trees.by_root
