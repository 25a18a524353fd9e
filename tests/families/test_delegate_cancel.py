"""`cancel_tasks`: what is cancelled is really stopped, told on the channel, and leaves everything
else alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue import Retinue
from retinue.models.base import ModelRequest
from retinue.testing import VirtualClock, call
from tests.api.scripted_agents import on_virtual_time
from tests.families.delegate_world import GROUP, Recorder, World, background, parallel, pause, task

LONG = "after 500 say x"


def cancel_group(**more: Any) -> Any:
    """Cancel the group that the first result names."""

    async def line(request: ModelRequest) -> Any:
        await asyncio.sleep(30)
        (group,) = GROUP.findall(request.messages[2].text)
        return call("cancel_tasks", group_id=group, **more)

    return line


@on_virtual_time
async def test_a_whole_group_is_cancelled_and_what_has_ended_stays_as_it_is() -> None:
    tasks = [task("a", LONG), task("b", "say b"), *(task(f"q{n}", LONG) for n in range(5))]
    world, channel = World(background(*tasks), cancel_group()), Recorder()
    await world.go(channel)
    assert (
        world.results[1]
        == "Cancelled: 'a', 'q0', 'q1', 'q2', 'q3', 'q4'. Already ended: 'b' (completed)."
    )
    why = "cancelled by its parent"
    names = ["q4", "a", "q0", "q1", "q2", "q3"]
    # Who waited in line has ended at once, who was at work a moment later: when its call is
    # stopped.
    assert channel.texts[2:8] == [f"'{x}' failed ({n}/7): {why}" for n, x in enumerate(names, 2)]
    assert (
        f"### a (failed)\nError: {why}" in channel.texts[8]
        and "### b (completed)\nb" in channel.texts[8]
    )
    assert len(channel.texts) == 9
    assert len(world.of(LONG)) <= 5, "those that waited for a place never began"
    assert world.busy == 0


@on_virtual_time
async def test_cancelled_work_stops_at_once_and_its_place_is_free() -> None:
    world = World(
        background(task("a", LONG)), cancel_group(), background("b"), max_background_groups=1
    )
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
        assert world.busy == 0, "its model call was broken off"
        first = await retinue.outcome(outcome.children[0].id)
    assert first is not None
    assert (first.state, first.ended_ms - first.created_ms) == ("cancelled", 30_000)
    assert world.results[2].startswith("Started")


@on_virtual_time
async def test_single_tasks_are_cancelled_by_their_ids() -> None:
    tasks = [task(x, LONG) for x in "abc"]
    world, channel = (
        World(background(*tasks), call("cancel_tasks", task_ids=["c", "a", "c"])),
        Recorder(),
    )
    await world.go(channel)
    assert world.results[1] == "Cancelled: 'c', 'a'."
    assert [t.split(" (")[0] for t in channel.texts[1:4]] == [
        "'c' failed",
        "'a' failed",
        "'b' completed",
    ]


@on_virtual_time
async def test_a_task_of_a_named_group_is_cancelled_there_only() -> None:
    calls = [background(task("a", LONG)), background(task("a", LONG))]
    world = World(calls, call("cancel_tasks", task_ids=["a"]), cancel_group(task_ids=["a"]))
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
    one, two = (GROUP.findall(r)[0] for r in world.results[:2])
    assert (
        world.results[2]
        == f"Task 'a' is running in several groups: {one}, {two}. Give 'group_id' too."
    )
    assert world.results[3] == "Cancelled: 'a'."
    assert [c.state for c in outcome.children] == ["cancelled", "thinking"]


@on_virtual_time
async def test_cancelling_again_changes_nothing_and_is_no_error() -> None:
    world, channel = (
        World(background(task("a", LONG), "b"), cancel_group(), cancel_group()),
        Recorder(),
    )
    await world.go(channel)
    assert world.results[2] == (
        "Nothing was cancelled. Already ended: 'a' (failed), 'b' (completed)."
    )
    assert not world.requests[-1].messages[-1].error  # type: ignore[union-attr]
    assert len(channel.texts) == 4


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({}, "Give 'group_id', 'task_ids', or both"),
        ({"task_ids": []}, "Give 'group_id', 'task_ids', or both"),
        ({"group_id": None}, "Give 'group_id', 'task_ids', or both"),
        ({"group_id": "bg-000000"}, "You have not started a task group 'bg-000000'. Running: bg-"),
        ({"task_ids": ["zz"]}, "No background task 'zz'. Running: 'a'"),
        ({"task_ids": ["a", "zz"]}, "No background task 'zz'. Running: 'a'"),
        ({"task_ids": "a"}, "Invalid parameters: Expected `array"),
        ({"task_ids": [1]}, "Invalid parameters: Expected `str"),
        ({"group_id": 5}, "Invalid parameters: Expected `str"),
        ({"group_id": {"id": "x"}}, "Invalid parameters: Expected `str"),
        ({"id": "a"}, "unknown field 'id'. Known fields: group_id, task_ids"),
    ],
)
@on_virtual_time
async def test_what_cannot_be_cancelled_is_said_and_everything_goes_on(
    args: dict[str, Any], text: str
) -> None:
    world, channel = World(background(task("a", LONG)), call("cancel_tasks", **args)), Recorder()
    await world.go(channel)
    assert world.results[1].startswith(text)
    assert "'a' completed (1/1)" in channel.texts


@on_virtual_time
async def test_groups_and_tasks_of_another_run_are_unknown() -> None:
    world = World(background(task("a", LONG)))
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        group = GROUP.findall((await retinue.run(world.lead, "Go.")).text)[0]
        world.lines = (
            [call("cancel_tasks", group_id=group), call("cancel_tasks", task_ids=["a"])],
        )
        await retinue.run(world.lead, "Go.")
        assert world.busy == 1
    assert world.results == [
        f"You have not started a task group '{group}'. Running: none",
        "No background task 'a'. Running: none",
    ]


@on_virtual_time
async def test_tasks_that_the_lead_has_waited_for_are_not_background_tasks() -> None:
    world = World(parallel("a"), call("cancel_tasks", task_ids=["a"]))
    assert await world.go() == "No background task 'a'. Running: none"


@on_virtual_time
async def test_a_cancelled_group_ends_also_what_its_tasks_have_started() -> None:
    async def hand_on(request: ModelRequest) -> Any:
        return parallel(task("deep", LONG)) if request.turn == 0 else "never"

    first = background(task("a", "hand on", ["delegate_tasks"]))
    world = World(
        first,
        pause(10, call("cancel_tasks", task_ids=["a"])),
        does={"hand on": hand_on},
        allow_nesting=True,
    )
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
        tree = await retinue.tree(outcome.id)
    assert (
        tree.children[0].state == "cancelled" and tree.children[0].children[0].state == "cancelled"
    )
    assert world.busy == 0
