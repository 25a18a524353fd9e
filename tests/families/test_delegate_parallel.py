"""Parallel mode, and what every sub-agent gets and may do in either mode."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

import pytest

from retinue import (
    Agent,
    AssistantMessage,
    ModelRejected,
    ModelReply,
    Origin,
    Permissions,
    Retinue,
    Usage,
)
from retinue.core.values import Ending, EndState
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, Scripted, VirtualClock, call
from retinue.tools.families.delegate.delegate_texts import results
from retinue.tools.families.family_states import DELEGATE
from tests.api.scripted_agents import on_virtual_time
from tests.families.delegate_world import (
    HOOK,
    Recorder,
    World,
    background,
    delegate,
    look_up,
    parallel,
    pause,
    task,
)

MODES = pytest.mark.parametrize(("mode", "seconds"), [("parallel", 120), ("background", 600)])


@on_virtual_time
async def test_results_are_markdown_in_the_order_of_the_input() -> None:
    does = {
        "fail": ModelRejected("Calendar access denied", kind="auth"),
        "hang": lambda q: asyncio.sleep(1_000),
    }
    world = World(
        parallel(
            task("search_events", "after 30 say Found 3 events."),
            task("check_weather", "after 10 say Sunny.\nAnd warm."),
            task("check_calendar", "fail"),
            task("check_mail", "hang"),
        ),
        does=does,
    )
    assert await world.go() == (
        "## Results\n\n"
        "### search_events (completed)\nFound 3 events.\n\n"
        "### check_weather (completed)\nSunny.\nAnd warm.\n\n"
        "### check_calendar (failed)\nError: Calendar access denied\n\n"
        "### check_mail (timed_out)\nSub-task timed out"
    )


@on_virtual_time
async def test_the_call_waits_for_the_last_task_and_the_lead_then_goes_on() -> None:
    world, store = World(parallel(task("a", "after 50 say A"), "b"), "All told."), MemoryStore()
    async with Retinue(store, clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
    assert outcome.text == "All told."
    assert outcome.ended_ms - outcome.created_ms == 50_000


@on_virtual_time
async def test_the_channel_hears_once_that_work_has_begun_and_nothing_for_each_task() -> None:
    world, channel = (
        World(
            parallel("a", "b", task("c", "fail"), task("d", "after 1000 say d")),
            does={"fail": ValueError()},
        ),
        Recorder(),
    )
    await world.go(channel)
    assert channel.texts == ["Working on 4 tasks..."]
    assert channel.at == {"Working on 4 tasks...": 0.0}
    assert channel.origins == {HOOK}


@on_virtual_time
async def test_without_a_channel_nothing_is_announced_and_the_results_are_the_same() -> None:
    world, channel = World(parallel("a")), Recorder()
    assert await world.go(channel, origin=Origin()) == "## Results\n\n### a (completed)\na"
    assert channel.texts == []


@pytest.mark.parametrize(
    ("settings", "most", "total"), [({}, 5, 20), ({"max_concurrent_subtasks": 2}, 2, 50)]
)
@pytest.mark.parametrize("mode", ["parallel", "background"])
@on_virtual_time
async def test_five_tasks_of_a_group_run_at_a_time_and_the_others_wait(
    mode: str, settings: dict[str, Any], most: int, total: int
) -> None:
    world, store = (
        World(delegate(mode, *(task(f"t{n}", "after 10 say x") for n in range(10))), **settings),
        MemoryStore(),
    )
    async with Retinue(store, clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        await retinue.run(world.lead, "Go.")
        await asyncio.sleep(100)
        rows = await store.started(0)
    assert world.most == most
    ends = [row.run.state.ending.at - row.spec.created_at for row in rows]  # type: ignore[union-attr]
    assert max(ends) == total * 1000


@on_virtual_time
async def test_each_group_has_places_of_its_own() -> None:
    tasks = [task(f"t{n}", "after 10 say x") for n in range(5)]
    world = World([parallel(*tasks), parallel(*tasks)])
    await world.go()
    assert world.most == 10


@MODES
@on_virtual_time
async def test_time_is_counted_from_the_moment_at_which_a_task_gets_its_place(
    mode: str, seconds: int
) -> None:
    """Three tasks, one place: each waits for the others longer than it may take itself."""
    late = seconds - 1
    tasks = [task(f"t{n}", f"after {late} say done {n}") for n in range(3)]
    world, channel = World(delegate(mode, *tasks), max_concurrent_subtasks=1), Recorder()
    text = await world.go(channel)
    assert (text if mode == "parallel" else channel.texts[-1]).count("(completed)\ndone") == 3


@MODES
@on_virtual_time
async def test_a_task_that_takes_too_long_is_timed_out_then_and_not_before(
    mode: str, seconds: int
) -> None:
    world, store = World(delegate(mode, task("a", f"after {seconds + 1} say a"))), MemoryStore()
    async with Retinue(store, clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        await retinue.run(world.lead, "Go.")
        await asyncio.sleep(1_000)
        (row,) = await store.started(0)
    ending: Ending = row.run.state.ending  # type: ignore[union-attr]
    assert (ending.state, ending.at - row.spec.created_at) == ("timed_out", seconds * 1000)


@pytest.mark.parametrize("mode", ["parallel", "background"])
@on_virtual_time
async def test_both_time_limits_can_be_set(mode: str) -> None:
    world, channel = (
        World(
            delegate(mode, task("a", "after 3 say a")),
            parallel_timeout_secs=2.5,
            background_timeout_secs=2,
        ),
        Recorder(),
    )
    text = await world.go(channel)
    assert "### a (timed_out)\nSub-task timed out" in (
        text if mode == "parallel" else channel.texts[-1]
    )


@on_virtual_time
async def test_what_was_said_before_the_time_was_over_is_kept() -> None:
    async def slow(request: ModelRequest) -> Any:
        if request.turn == 0:
            return AssistantMessage(text="Half of it.", calls=(call("look_up", word="x"),))
        return await asyncio.sleep(1_000)

    text = await World(parallel(task("a", "slow", ["look_up"])), does={"slow": slow}).go()
    assert text.endswith("### a (timed_out)\nSub-task timed out\n\nText so far:\nHalf of it.")


@on_virtual_time
async def test_an_eleventh_turn_is_not_taken_and_the_text_so_far_is_kept() -> None:
    async def round_and_round(request: ModelRequest) -> Any:
        text = f"Thought {request.turn + 1}." if request.turn < 9 else ""
        return AssistantMessage(text=text, calls=(call("look_up", word="x"),))

    world, channel = (
        World(parallel(task("a", "loop", ["look_up"])), does={"loop": round_and_round}),
        Recorder(),
    )
    text = await world.go(channel)
    assert text.endswith(
        "### a (failed)\nError: Tool loop exceeded maximum iterations\n\nText so far:\nThought 9."
    )
    assert len(world.of("loop")) == 10


@on_virtual_time
async def test_a_tenth_turn_that_answers_is_in_time() -> None:
    async def just(request: ModelRequest) -> Any:
        return call("look_up", word="x") if request.turn < 9 else "Made it."

    assert (
        "### a (completed)\nMade it."
        in await World(parallel(task("a", "loop", ["look_up"])), does={"loop": just}).go()
    )


@on_virtual_time
async def test_a_failing_task_keeps_its_id_and_touches_no_sibling() -> None:
    async def panic(request: ModelRequest) -> Any:
        raise RuntimeError("boom")

    text = await World(
        parallel(task("a", "panic"), task("b", "after 60 say B"), task("c", "panic")),
        does={"panic": panic},
    ).go()
    assert re.sub("Error: .*boom.*", "Error: boom", text) == (
        "## Results\n\n### a (failed)\nError: boom\n\n### b (completed)\nB\n\n### c "
        "(failed)\nError: boom"
    )


@on_virtual_time
async def test_a_reply_cut_off_by_its_length_is_a_failure_that_keeps_the_text() -> None:
    reply = ModelReply(
        message=AssistantMessage(text="It begins"), usage=Usage(input=1, output=1), stop="length"
    )
    text = await World(parallel(task("a", "cut")), does={"cut": reply}).go()
    assert text.endswith(
        "### a (failed)\nError: The reply was truncated at its length limit\n\nText so "
        "far:\n" + "It begins" * 9
    )


@on_virtual_time
async def test_an_empty_answer_is_an_error() -> None:
    text = await World(parallel(task("a", "mute")), does={"mute": ""}).go()
    assert text.endswith("### a (failed)\nError: the model returned no text")


@on_virtual_time
async def test_a_sub_agent_is_told_its_role_its_context_its_task_and_how_to_answer() -> None:
    world = World(
        parallel(
            task("a", "Do this.", ["look_up"], context_summary="The user likes tea."),
            task("b", "Do that."),
        )
    )
    world.does = {"Do this.": "done", "Do that.": "done"}
    await world.go()
    (first,), (second,) = world.of("Do this."), world.of("Do that.")
    role, context, rest = re.split(r"\n\n## (?:Context|Your Task)\n", first.instructions)
    prompt, closing = rest.split("\n\n")
    assert "sub-agent" in role and "\n" not in role
    assert (context, prompt) == ("The user likes tea.", "Do this.")
    assert "Reply with" in closing and "\n" not in closing
    assert [m.text for m in first.messages] == ["Do this."], "the prompt is also its first message"
    assert "Lead." not in first.instructions and "Do not poll" not in first.instructions
    assert "## Context\n" in second.instructions and "tea" not in second.instructions


@on_virtual_time
async def test_a_sub_agent_is_offered_the_listed_tools_only() -> None:
    world = World(
        parallel(task("a", tools=["write_down"]), task("b", tools=["write_down", "look_up"]), "c")
    )
    await world.go()
    assert [[t.name for t in world.of(f"say {x}")[0].tools] for x in "abc"] == [
        ["write_down"],
        ["look_up", "write_down"],
        [],
    ]


@pytest.mark.parametrize("name", ["write_down", "artifact"])
@on_virtual_time
async def test_a_call_outside_the_list_is_an_error_that_names_the_tool(name: str) -> None:
    async def curious(request: ModelRequest) -> Any:
        return call(name, text="x") if request.turn == 0 else request.messages[-1].text

    text = await World(parallel(task("a", "go", ["look_up"])), does={"go": curious}).go()
    assert text.endswith(
        f"### a (completed)\nError: the tool '{name}' is not available for this sub-agent."
    )


@on_virtual_time
async def test_a_sub_agent_that_calls_delegate_tasks_starts_nobody() -> None:
    async def curious(request: ModelRequest) -> Any:
        return parallel("x") if request.turn == 0 else request.messages[-1].text

    world = World(parallel(task("a", "go", ["delegate_tasks", "look_up"])), does={"go": curious})
    text = await world.go()
    assert "'delegate_tasks'" in text and world.of("say x") == []


@on_virtual_time
async def test_a_task_can_have_a_model_of_its_own() -> None:
    small = Scripted(["from the small one"], name="small")
    world = World(parallel(task("a", model="small"), "b"))
    world.lead = Agent(
        "lead", model=world.model, families=["delegate"], staff=[Agent("other", model=small)]
    )
    assert (
        await world.go()
        == "## Results\n\n### a (completed)\nfrom the small one\n\n### b (completed)\nb"
    )
    assert [r.model for r in world.of("say b")] == ["model of lead"], "the others run on the lead's"


@pytest.mark.parametrize("mode", ["parallel", "background"])
@on_virtual_time
async def test_an_unknown_model_is_an_error_that_names_the_models(mode: str) -> None:
    world, channel = World(delegate(mode, "a", task("b", model="gpt-0"))), Recorder()
    assert (
        await world.go(channel) == "Task 1: unknown model 'gpt-0'. Available models: model of lead"
    )
    assert channel.texts == [] and world.of("say a") == []


@on_virtual_time
async def test_usage_is_counted_for_tasks_that_failed_or_timed_out_too() -> None:
    async def slow(request: ModelRequest) -> Any:
        if request.turn == 0:
            return call("look_up", word="x")
        return await asyncio.sleep(1_000)

    async def bad(request: ModelRequest) -> Any:
        return call("look_up", word="x") if request.turn == 0 else ModelRejected("no")

    world, store = (
        World(parallel(task("a", "slow", ["look_up"]), task("b", "bad", ["look_up"]))),
        MemoryStore(),
    )
    world.does = {"slow": slow, "bad": bad}
    async with Retinue(store, clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        outcome = await retinue.run(world.lead, "Go.")
        used = [row.run.usage.tokens for row in await store.started(0)]
    assert min(used) > 0 and outcome.tree_tokens == outcome.usage.tokens + sum(used)


@on_virtual_time
async def test_a_lead_that_is_steered_away_hears_of_its_tasks_by_mail() -> None:
    world = World(
        parallel(task("a", "after 50 say A"), task("b", "bad")),
        pause(90, call("look_up", word="x")),
        "done",
    )
    world.does = {"bad": pause(60, ModelRejected("no"))}
    async with Retinue(clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        await asyncio.sleep(10)
        await retinue.send(run, "How far are you?", steer=True)
        await retinue.wait(run)
    news = "\n".join(m.text for m in world.requests[-1].messages)
    assert "### a (completed)\nA" in news and "### b (failed)\nError: no" in news


@on_virtual_time
async def test_what_was_taken_from_a_lead_it_cannot_give() -> None:
    world = World([parallel(task("a", tools=["look_up"])), parallel(task("b", model="other"))])
    world.lead = Agent(
        "lead",
        model=world.model,
        tools=[look_up],
        families=["delegate"],
        staff=[Agent("other", model=Scripted(["x"], name="other"))],
        options={"permissions": Permissions(deny=("look_up",), models=("model of lead",))},
    )
    await world.go()
    assert world.results == [
        "## Results\n\n### a (completed)\na\n\n(It was not given 'look_up': unknown "
        "tool. Available: artifact)",
        "Task 0: unknown model 'other'. Available models: model of lead",
    ]


@on_virtual_time
async def test_tasks_work_where_their_lead_works() -> None:
    world, store = World([parallel("a"), background("b")]), MemoryStore()
    async with Retinue(store, clock=VirtualClock(), channels={"hook": Recorder()}) as retinue:
        await retinue.run(world.lead, "Go.", cwd="project")
        assert {row.spec.request.cwd for row in await store.started(0)} == {
            os.getcwd() + "/project"
        }


@pytest.mark.parametrize("state", DELEGATE)
def test_every_end_is_shown_as_the_table_of_states_says(state: EndState) -> None:
    class Fake:
        label, item, remark = "a", 0, ""
        ending = Ending(state=state, stop="x_y", text="T")

    heading, rest = results([Fake()]).whole().removeprefix("## Results\n\n").split("\n", 1)  # type: ignore[list-item]
    assert heading == f"### a ({DELEGATE[state]})"
    head = {"completed": "T", "timed_out": "Sub-task timed out", "failed": "Error: x y"}[
        DELEGATE[state]
    ]
    assert rest.split("\n")[0] == head and rest.endswith("T")
