"""One call waits until a tree, its background work and its announcements are done; `run_sync` uses
it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Delivery, NotFound, Origin, Retinue, RetinueError, run_sync
from retinue.core.state import RunRecord, ending_of
from retinue.models.base import Model
from retinue.testing import MemoryStore, Scripted, VirtualClock, call
from tests.api.scripted_agents import STORES, Home, agent, ended, hiring, lead_of, on_virtual_time

both = pytest.mark.parametrize("kind", STORES)
HOOK = Origin(channel="hook", user="ada")


class Hook:
    """A channel that refuses the first few times."""

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.heard = failures, list[str]()

    async def send(self, delivery: Delivery) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("not now")
        self.heard.append(delivery.text)


def starter(n: int = 2, **options: Any) -> Agent:
    """A lead that starts children in the background and ends long before them."""
    child = agent("child", ["found it"], seconds=100)
    return lead_of(child, n, join="none", on_parent_end="keep", **options)


@both
@on_virtual_time
async def test_a_tree_has_settled_when_its_background_work_and_its_announcements_are_done(
    kind: str, tmp_path: Path
) -> None:
    hook, home = Hook(failures=2), Home(kind, tmp_path)
    async with home.open(channels={"hook": hook}) as retinue:
        run = await retinue.spawn(starter(announce=True), "Go.", origin=HOOK)
        await ended(retinue, run)
        assert [c.state for c in (await retinue.tree(run)).children] == ["thinking"] * 2
        assert await retinue.settle(run) is True
        assert [c.state for c in (await retinue.tree(run)).children] == ["completed"] * 2
        assert [d.state async for d in retinue.deliveries()] == ["acked"] * 2
    assert hook.heard == ["found it"] * 2


@on_virtual_time
async def test_children_that_are_not_kept_can_be_waited_for_all_the_same() -> None:
    """To wait for `outcome.children` by their ids is a race with those that are deleted as soon as
    they are told."""
    hook = Hook()
    async with Retinue(clock=VirtualClock(), channels={"hook": hook}) as retinue:
        lead = starter(announce=True, retention="delete")
        outcome = await retinue.run(lead, "Go.", origin=HOOK)
        assert await retinue.settle(outcome.id)
        assert hook.heard == ["found it"] * 2
        with pytest.raises(NotFound):
            await retinue.wait(outcome.children[0].id)
        assert await retinue.settle(outcome.id), "nothing is left to wait for"


@on_virtual_time
async def test_the_time_may_not_be_enough() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(starter(), "Go.")
        assert await retinue.settle(run, timeout=50) is False
        assert await retinue.settle(run, timeout=100) is True


@on_virtual_time
async def test_one_tree_has_settled_while_another_works() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        slow = await retinue.spawn(agent("slow", ["x"], seconds=10_000), "Go.")
        run = await retinue.spawn(starter(), "Go.")
        assert await retinue.settle(run) is True
        assert (await retinue.tree(slow)).state == "thinking"
        assert await retinue.settle() is True, "without a name, all of them"
        assert (await retinue.tree(slow)).state == "completed"


@on_virtual_time
async def test_what_the_runs_before_it_have_left_belongs_to_a_run_that_goes_on(
    tmp_path: Path,
) -> None:
    lead = starter()
    async with Retinue(clock=VirtualClock()) as retinue:
        first = await retinue.spawn(lead, "Go.")
        await ended(retinue, first)
        second = await retinue.resume(first)
        await ended(retinue, second)
        assert await retinue.settle(second) is True
        assert [c.state for c in (await retinue.tree(first)).children] == ["completed"] * 2


@on_virtual_time
async def test_a_run_that_lives_for_messages_and_has_none_has_nothing_left_to_do() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        how: dict[str, Any] = {"stay_open": True}
        run = await retinue.spawn(agent("host", ["hello", "again"], seconds=5), "Go.", **how)
        assert await retinue.settle(run) is True
        assert (await retinue.tree(run)).state == "waiting"


@on_virtual_time
async def test_a_run_whose_agent_is_not_known_here_is_not_waited_for(tmp_path: Path) -> None:
    home = Home("memory", tmp_path)
    async with home.open() as retinue:
        run = await retinue.spawn(agent("slow", ["x"], seconds=100), "Go.")
    async with home.open() as retinue:
        assert retinue.runs_without_agent == (run,)
        assert await retinue.settle(run) is False
        assert await retinue.settle() is False


@on_virtual_time
async def test_a_run_that_there_is_not_cannot_settle() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        with pytest.raises(NotFound):
            await retinue.settle("nobody")


@on_virtual_time
async def test_whoever_waits_hears_that_the_runtime_was_closed() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(starter(), "Go.")
        waiting = asyncio.ensure_future(retinue.settle(run))
        await asyncio.sleep(1)
    with pytest.raises(RetinueError, match="closed"):
        await waiting


@on_virtual_time
async def test_a_program_that_is_about_to_end_does_not_leave_background_work_behind() -> None:
    hook = Hook()
    async with Retinue(clock=VirtualClock(), channels={"hook": hook}) as retinue:
        await retinue.run(starter(announce=True), "Go.", origin=HOOK)
        assert await retinue.settle(timeout=10) is False, "children are at work, and will announce"
        assert await retinue.settle(timeout=600) is True
    assert hook.heard == ["found it"] * 2


def text_of(row: RunRecord) -> str:
    ending = ending_of(row.run)
    return "" if ending is None else ending.text


# in a program without an event loop


def quick(**options: Any) -> Agent:
    child = agent("child", ["found it"], seconds=0.05)
    return lead_of(child, 2, join="none", on_parent_end="keep", **options)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_run_sync_returns_when_everybody_has_ended(kind: str, tmp_path: Path) -> None:
    outcome = run_sync(quick(), "Go.", store=None if kind == "memory" else tmp_path / "log.db")
    assert [c.state for c in outcome.children] == ["completed"] * 2


def test_run_sync_takes_channels_and_waits_for_what_is_announced() -> None:
    hook = Hook()
    run_sync(quick(announce=True), "Go.", runtime={"channels": {"hook": hook}}, origin=HOOK)
    assert hook.heard == ["found it"] * 2


class Shelf:
    """Models by name."""

    offered: tuple[str, ...] = ("shelf:two",)

    def knows(self, name: str) -> bool:
        return name.startswith("shelf:")

    def resolve(self, name: str) -> str:
        return name

    def find(self, name: str) -> Model:
        return Scripted([f"{name} speaking"], name=name)

    async def close(self) -> None:
        pass


def test_run_sync_takes_models() -> None:
    assert (
        run_sync(Agent("one", model="shelf:one"), "Go.", runtime={"models": Shelf()}).text
        == "shelf:one speaking"
    )
    lead = Agent("lead", model="shelf:one")
    assert (
        run_sync(lead, "Go.", runtime={"models": Shelf()}, model="shelf:two").text
        == "shelf:two speaking"
    )


def test_run_sync_takes_agents_so_that_what_an_earlier_process_left_goes_on() -> None:
    store, slow = MemoryStore(), agent("slow", ["I am back"], seconds=0.2)

    async def leave() -> str:
        async with Retinue(store) as retinue:
            return await retinue.spawn(slow, "Go.")

    rest = asyncio.run(leave())
    again = store.survivor()
    run_sync(agent("one", ["x"], seconds=1.0), "Go.", store=again, agents=[slow])
    row = asyncio.run(again.survivor().row(rest))
    assert row is not None
    assert text_of(row) == "I am back"


def test_run_sync_says_which_options_there_are() -> None:
    with pytest.raises(
        RetinueError, match=r"run_sync\(\) has no option 'labl'\. Did you mean 'label'\?"
    ):
        run_sync(agent("one", ["x"]), "Go.", labl="x")


def test_a_hired_child_that_hires_is_waited_for_too() -> None:
    deep = agent("deep", ["deep down"], seconds=0.05)
    hires = [call("hire", tasks=["dig"]), "on it"]
    middle = agent(
        "middle", hires, tools=[hiring(deep, join="none", on_parent_end="keep")], staff=[deep]
    )
    store = MemoryStore()
    top = [call("hire", tasks=["go"]), "off"]
    lead = agent(
        "lead", top, tools=[hiring(middle, join="none", on_parent_end="keep")], staff=[middle, deep]
    )
    outcome = run_sync(lead, "Go.", store=store)
    below = asyncio.run(store.children(outcome.children[0].id))
    assert [text_of(row) for row in below] == ["deep down"]
