"""The corners of the family `delegate`: one wrong tool in a list of tasks, groups as they are seen
from outside, and groups that outlive the run that has started them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import NotFound, Origin, Retinue
from retinue.config import read_config
from retinue.models.base import ModelRequest
from retinue.testing import VirtualClock, call
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import STORES, Home, agent, ended, lead_of, on_virtual_time
from tests.families.delegate_world import (
    GROUP,
    HOOK,
    Recorder,
    World,
    background,
    parallel,
    pause,
    task,
)

both = pytest.mark.parametrize("kind", STORES)
LONG = "after 500 say x"
NOWHERE = Origin()


# one wrong tool


@on_virtual_time
async def test_a_tool_that_there_is_not_in_one_task_does_not_keep_the_others_from_their_work() -> (
    None
):
    tasks = [
        task("a", tools=["look_up"]),
        task("b", tools=["look_up", "rocket", "sub"]),
        task("c", tools=["rocket"]),
    ]
    world = World(parallel(*tasks))
    assert await world.go() == (
        "## Results\n\n### a (completed)\na\n\n### b (completed)\nb\n\n(It was not given "
        "'rocket', 'sub': unknown tool. Available: look_up, write_down, artifact)\n\n### "
        "c (completed)\nc\n\n(It was not given 'rocket': unknown tool. "
        "Available: look_up, write_down, artifact)"
    )
    assert [[t.name for t in world.of(f"say {x}")[0].tools] for x in "abc"] == [
        ["look_up"],
        ["look_up"],
        [],
    ]


@on_virtual_time
async def test_in_the_background_the_answer_says_at_once_which_task_works_without_what() -> None:
    world, channel = World(background(task("a"), task("b", tools=["rocket"]))), Recorder()
    text = await world.go(channel)
    assert text.endswith(
        "as tasks complete. Task 'b' was not given 'rocket': unknown tool. Available: "
        "look_up, write_down, artifact"
    )
    assert "### b (completed)\nb\n\n(It was not given 'rocket'" in channel.texts[-1]


@on_virtual_time
async def test_a_tool_that_was_not_given_is_not_available_for_the_task() -> None:
    texts: list[str] = []

    async def try_it(request: ModelRequest) -> Any:
        if request.turn == 0:
            return call("rocket")
        texts.append(request.messages[-1].text)
        return "done"

    await World(parallel(task("a", "try", ["rocket"])), does={"try": try_it}).go()
    assert texts and "rocket" in texts[0]


# as they are seen from outside


@both
@on_virtual_time
async def test_the_id_of_a_group_is_in_the_api(kind: str, tmp_path: Path) -> None:
    world = World([background(task("a", LONG), "b"), parallel("c"), background(task("d", LONG))])
    async with Home(kind, tmp_path).open(channels={"hook": Recorder()}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
        await asyncio.sleep(10)
        one, two = (GROUP.findall(r)[0] for r in (world.results[0], world.results[2]))
        assert sorted((c.label, c.group) for c in outcome.children) == [
            ("a", one), ("b", one), ("c", ""), ("d", two),
        ]  # fmt: skip
        tree = await retinue.tree(outcome.id)
        assert {n.label: n.group for n in tree.children} == {"a": one, "b": one, "c": "", "d": two}
        listed = [r async for r in retinue.runs(children=True)]
        assert {s.label: s.group for s in listed if s.parent} == {
            "a": one,
            "b": one,
            "c": "",
            "d": two,
        }
        groups = await retinue.groups(outcome.id)
        assert [(g.id, g.kind, g.run, g.size, g.is_open) for g in groups] == [
            (one, "delegate", outcome.id, 2, True), (two, "delegate", outcome.id, 1, True),
        ]  # fmt: skip
        assert [(m.label, m.state) for m in groups[0].members] == [
            ("a", "thinking"),
            ("b", "completed"),
        ]


@on_virtual_time
async def test_a_group_can_be_cancelled_by_its_id() -> None:
    world = World([background(task("a", LONG), "b"), background(task("d", LONG))])
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
        await asyncio.sleep(10)
        one, two = await retinue.groups(outcome.id)
        assert one.is_open
        group = await retinue.cancel_group(outcome.id, one.id, "not wanted")
        assert [(m.label, m.state) for m in group.members] == [
            ("a", "cancelled"),
            ("b", "completed"),
        ]
        assert not group.is_open
        assert (await retinue.groups(outcome.id))[1].is_open, "the other one goes on"
        assert (await retinue.cancel_group(outcome.id, one.id)).members == group.members, (
            "twice changes nothing"
        )
        with pytest.raises(NotFound, match=f"no group 'bg-nothing'.*{one.id}, {two.id}"):
            await retinue.cancel_group(outcome.id, "bg-nothing")


@both
@on_virtual_time
async def test_a_group_that_is_only_counted_is_not_shown(kind: str, tmp_path: Path) -> None:
    lead = lead_of(
        agent("child", ["x"]),
        2,
        join="none",
        children_on_end="wait",
        group="g",
        group_kind="counted",
    )
    async with Home(kind, tmp_path).open() as retinue:
        outcome = await retinue.run(lead, "Go.")
        assert {c.group for c in outcome.children} == {""}
        assert {s.group async for s in retinue.runs(children=True)} == {""}
        assert await retinue.groups(outcome.id) == []


# of a lead that goes on


@both
@pytest.mark.parametrize("origin", [HOOK, NOWHERE])
@on_virtual_time
async def test_a_lead_that_goes_on_can_list_and_cancel_the_groups_of_its_earlier_run(
    kind: str, origin: Origin, tmp_path: Path
) -> None:
    world = World(background(task("a", LONG), "b"))
    home = Home(kind, tmp_path)
    async with home.open(channels={"hook": Recorder()}) as retinue:
        first = await retinue.spawn(world.lead, "Go.", origin=origin)
        (group,) = GROUP.findall((await ended(retinue, first)).text)
        await asyncio.sleep(10)
    async with home.open(channels={"hook": Recorder()}, agents=[world.lead]) as retinue:
        world.lines = (call("list_tasks"), call("cancel_tasks", group_id=group), call("list_tasks"))
        second = await retinue.resume(first, origin=origin)
        await ended(retinue, second)
        assert [g.id for g in await retinue.groups(second)] == [group]
        assert world.results[-3:] == [
            f"{group} (1 of 2 running)\n- 'a' running\n- 'b' completed",
            "Cancelled: 'a'. Already ended: 'b' (completed).",
            f"{group} (0 of 2 running)\n- 'a' failed\n- 'b' completed",
        ]
        assert [c.state for c in (await retinue.tree(first)).children] == ["cancelled", "completed"]


@on_virtual_time
async def test_the_api_finds_and_ends_the_groups_of_an_earlier_run_of_the_conversation() -> None:
    world = World(background(task("a", LONG)))
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        first = await retinue.spawn(world.lead, "Go.")
        await ended(retinue, first)
        world.lines = (background(task("c", LONG)), "so be it")
        second = await retinue.resume(first)
        await ended(retinue, second)
        one, two = await retinue.groups(second)
        assert (one.run, two.run) == (first, second)
        assert [g.id for g in await retinue.groups(first)] == [one.id]
        assert [m.state for m in (await retinue.cancel_group(second, one.id)).members] == [
            "cancelled"
        ]


@on_virtual_time
async def test_a_list_of_tasks_says_what_there_is_and_what_there_is_not() -> None:
    world = World(
        call("list_tasks"),
        [background(task("a", LONG)), background(task("d", LONG))],
        call("list_tasks"),
    )
    await world.go(seconds=0)
    one, two = (GROUP.findall(r)[0] for r in world.results[1:3])
    assert world.results[0] == "You have not started any task groups."
    assert (
        world.results[3]
        == f"{one} (1 of 1 running)\n- 'a' running\n\n{two} (1 of 1 running)\n- 'd' running"
    )
    world = World(
        background(task("a", LONG)),
        call("list_tasks", group_id="bg-nothing"),
        call("list_tasks", x=1),
    )
    await world.go(seconds=0)
    (group,) = GROUP.findall(world.results[0])
    assert world.results[1] == f"You have not started a task group 'bg-nothing'. Running: {group}"
    assert world.results[2] == "unknown field 'x'. Known fields: group_id"


@both
@pytest.mark.parametrize(
    "when", ["before it goes on", "while it is at work", "between two runs of it"]
)
@on_virtual_time
async def test_without_a_channel_results_reach_the_conversation_once(
    kind: str, when: str, tmp_path: Path
) -> None:
    world, home = (
        World(background(task("a", "after 50 say A"), task("bad", "after 60 say "))),
        Home(kind, tmp_path),
    )
    async with home.open(agents=[world.lead]) as retinue:
        first = await retinue.spawn(world.lead, "Go.", origin=NOWHERE)
        assert "No channel" in (await ended(retinue, first)).text
        if when != "before it goes on":
            world.lines = (
                (pause(100, "waited"), "read", "read")
                if when == "while it is at work"
                else ("quick",)
            )
            await ended(retinue, await retinue.resume(first, origin=NOWHERE))
        await retinue.settle()
        last, *_ = [r.id async for r in retinue.runs()]
    async with home.open(agents=[world.lead]) as retinue:
        for _ in range(3):
            world.lines = ("well", "well", "well")
            last = await retinue.resume(last, origin=NOWHERE)
            await ended(retinue, last)
        texts = [m.text for m in await retinue.messages(last)]
        assert len([t for t in texts if "### a (completed)\nA" in t]) == 1
        assert len([t for t in texts if "### bad (" in t]) == 1
        assert await retinue.verify() == []
    if when == "before it goes on":
        requests = [
            r
            for r in world.requests
            if r.messages[-1].text == "Continue." or "### a" in r.messages[-1].text
        ]
        assert "### a (completed)\nA" in "".join(m.text for m in requests[0].messages), (
            "the first prompt has it"
        )


@on_virtual_time
async def test_what_a_channel_was_told_is_not_told_again_in_the_conversation() -> None:
    world, channel = World(background(task("a", "after 50 say A"))), Recorder()
    async with Retinue(clock=VirtualClock(), channels={"hook": channel}) as retinue:
        first = await retinue.spawn(world.lead, "Go.")
        await retinue.settle(first)
        world.lines = ("well",)
        second = await retinue.resume(first)
        await ended(retinue, second)
        assert not any("### a" in m.text for m in await retinue.messages(second))
    assert "### a (completed)\nA" in channel.texts[-1]


@on_virtual_time
async def test_what_the_lead_has_cancelled_itself_is_no_news_when_it_goes_on() -> None:
    world = World(background(task("a", LONG)), pause(10, call("cancel_tasks", task_ids=["a"])))
    async with Retinue(clock=VirtualClock()) as retinue:
        first = await retinue.spawn(world.lead, "Go.", origin=NOWHERE)
        await retinue.settle(first)
        world.lines = ("well",)
        second = await retinue.resume(first, origin=NOWHERE)
        await ended(retinue, second)
        assert not any(
            m.text.count("cancelled by its parent") for m in await retinue.messages(second)
        )


# the profile and the document's own configuration


@on_virtual_time
async def test_the_profile_meepo_offers_the_tool_of_the_document_and_the_others_are_a_setting() -> (
    None
):
    for settings, names in (
        ({}, ["delegate_tasks"]),
        ({"more_tools": True}, ["delegate_tasks", "cancel_tasks", "list_tasks"]),
    ):
        result = family("meepo", **settings)
        assert [t.schema.name for t in result.tools()] == names
        assert all(
            (name in result.guide) is (name in names) for name in ("cancel_tasks", "list_tasks")
        )
    assert family("delegate").tool_names == ("delegate_tasks", "cancel_tasks", "list_tasks")


DOCUMENTED = """
[orchestrator]
max_concurrent_subtasks = 5
max_subtasks_per_request = 10
parallel_timeout_secs = 120
background_timeout_secs = 600
max_background_groups = 3
"""


def of_file(folder: Path, text: str) -> Any:
    file = folder / "retinue.toml"
    file.write_text('profiles = ["meepo"]\n' + text)
    (result,) = read_config(file).families
    return result


async def hang(request: ModelRequest) -> Any:
    return await asyncio.sleep(100_000)


@on_virtual_time
async def test_the_configuration_of_the_document_loads_as_it_stands_and_is_enforced_here(
    tmp_path: Path,
) -> None:
    result = of_file(tmp_path, DOCUMENTED)
    assert result.settings == family("meepo").settings, "they are the defaults"
    eleven = parallel(*(f"t{n}" for n in range(11)))
    lines = [
        eleven,
        parallel(*(task(f"t{n}", "after 1 say x") for n in range(10))),
        parallel(task("h", "hang")),
    ]
    lines += [[background(task(f"g{n}", "hang")) for n in range(4)]]
    world, channel = World(*lines, does={"hang": hang}), Recorder()
    world.lead = world.agent(
        "lead", **{f: getattr(result.settings, f) for f in result.settings.__struct_fields__}
    )
    await world.go(channel)
    assert world.results[0] == "Too many sub-tasks: 11 (max 10)"
    assert world.results[1].count("(completed)") == 10 and world.most == 5
    assert world.results[2] == "## Results\n\n### h (timed_out)\nSub-task timed out"
    assert world.results[-1] == "Too many background task groups running: 3 (max 3)"
    at = [round(channel.at[t]) for t in channel.texts if "timed_out (1/1)" in t]
    start = round(channel.at[next(t for t in channel.texts if "'g0'" in t)])
    assert [a - start for a in at] == [600] * 3


@on_virtual_time
async def test_each_value_of_the_documents_configuration_counts_when_it_is_another_here(
    tmp_path: Path,
) -> None:
    text = "max_concurrent_subtasks = 2\nmax_subtasks_per_request = 3\nparallel_timeout_secs = 7\n"
    result = of_file(
        tmp_path, f"[orchestrator]\n{text}background_timeout_secs = 9\nmax_background_groups = 1\n"
    )
    lines = [
        parallel(*"abcd"),
        parallel(*(task(x, "after 1 say x") for x in "abc")),
        parallel(task("h", "hang")),
    ]
    lines += [[background(task(f"g{n}", "hang")) for n in range(2)]]
    world, channel = World(*lines, does={"hang": hang}), Recorder()
    world.lead = world.agent(
        "lead", **{f: getattr(result.settings, f) for f in result.settings.__struct_fields__}
    )
    began = asyncio.get_running_loop().time()
    await world.go(channel)
    assert world.results[0] == "Too many sub-tasks: 4 (max 3)" and world.most == 2
    assert world.results[-1] == "Too many background task groups running: 1 (max 1)"
    ended_at = channel.at[next(t for t in channel.texts if "timed_out (1/1)" in t)]
    assert round(ended_at - began) == 2 + 7 + 9


# what is beyond the document


@on_virtual_time
async def test_a_model_for_one_task_is_not_offered_by_the_profile_meepo() -> None:
    world = World(parallel(task("a", model="model of lead")), more_tools=False, task_fields=[])
    assert family("meepo").settings == world.lead.families[0].settings  # type: ignore[union-attr]
    text = await world.go()
    assert (
        text
        == "Task 0: unknown field 'model'. Known fields: task_id, prompt, tools, context_summary"
    )
    (offered,) = [t for t in world.requests[0].tools if t.name == "delegate_tasks"]
    fields = offered.parameters["properties"]["tasks"]["items"]["properties"]
    assert list(fields) == ["task_id", "prompt", "context_summary", "tools"]


@on_virtual_time
async def test_a_model_for_one_task_is_a_setting_of_the_profile() -> None:
    fields = (
        family("meepo", task_fields=["model"])
        .tools()[0]
        .schema.parameters["properties"]["tasks"]["items"]
    )
    assert "model" in fields["properties"]
    assert (
        await World(parallel(task("a", model="model of lead"))).go()
        == "## Results\n\n### a (completed)\na"
    )
