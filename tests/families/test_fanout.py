"""`spawn_agents` seen from outside: what goes out, what comes back, and when the lead goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue import Agent, Retinue, tool
from retinue.core.events import CancelAsked, ChildEnded
from retinue.core.messages import UserMessage
from retinue.errors import ConfigError, NotFound
from retinue.models.base import ModelRequest
from retinue.runtime.bus import Step
from retinue.testing import Scripted, VirtualClock, call
from retinue.tools.families.fanout.fanout_family import FanoutFamily
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.fanout_world import (
    HELPER,
    Cast,
    lead,
    play,
    played,
    reader,
    results,
    spawn,
    success,
    task_of,
)


def after(**seconds: float) -> Any:
    """A child that submits what its task is, so many seconds after its start."""

    async def child(request: ModelRequest) -> Any:
        await asyncio.sleep(seconds.get(task_of(request), 0))
        return call("submit_result", result=f"did {task_of(request)}")

    return child


def slow(seconds: float, result: list[str]) -> Any:
    @tool(risk="read")
    async def dig() -> str:
        """Dig."""
        await asyncio.sleep(seconds)
        result.append("dug")
        return "dug"

    return dig


@on_virtual_time
async def test_every_task_is_done_by_a_sub_agent_and_the_results_come_back_together() -> None:
    cast = Cast([spawn("a", "b", "c"), "thanks"])
    scene = await play(lead(cast))
    assert scene.outcome.text == "thanks"
    assert [r["task"] for r in scene.json] == ["a", "b", "c"]
    assert [r["outcome"] for r in scene.json] == [
        {"success": {"result": f"did {t}"}} for t in "abc"
    ]
    assert len(scene.told) == 1, "one call has one result"


@on_virtual_time
async def test_the_ids_in_the_results_are_those_of_the_runs() -> None:
    scene = await play(lead(Cast([spawn("a", "b"), "thanks"])))
    assert [r["agent_id"] for r in scene.json] == [c.id for c in scene.outcome.children]
    assert [scene.ends[r["agent_id"]].text for r in scene.json] == ["did a", "did b"]


@on_virtual_time
async def test_results_stand_in_the_order_of_their_ends() -> None:
    cast = Cast([spawn("late", "soon", "next"), "thanks"], after(late=30, soon=10, next=20))
    scene = await play(lead(cast))
    assert [r["task"] for r in scene.json] == ["soon", "next", "late"]


@on_virtual_time
async def test_sub_agents_work_side_by_side() -> None:
    cast = Cast(
        [spawn(*(f"t{n}" for n in range(10))), "thanks"], after(**{f"t{n}": 60 for n in range(10)})
    )
    scene = await play(lead(cast))
    assert scene.outcome.ended_ms - scene.outcome.created_ms == 60_000


@on_virtual_time
async def test_the_lead_goes_on_only_when_the_last_is_back() -> None:
    cast = Cast([spawn("a", "b"), "thanks"], after(a=5, b=50))

    async def then(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(40)
        assert len(cast.of_lead) == 1
        assert [c.state for c in (await retinue.tree(run)).children] == ["completed", "thinking"]
        assert (await retinue.tree(run)).state == "waiting"

    assert (await play(lead(cast), then)).outcome.ended_ms % 100_000 == 50_000
    assert len(cast.of_lead) == 2


@on_virtual_time
async def test_several_calls_of_a_turn_share_one_fan_in_and_each_is_told_of_its_own_children() -> (
    None
):
    cast = Cast([[spawn("a", "b"), spawn("c")], "thanks"], after(a=20, b=10, c=5))

    async def then(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(15)
        assert [m.text for m in (await retinue.messages(run))[2:]] == [], (
            "no call is answered before all are back"
        )

    scene = await play(lead(cast), then)
    first, second = sorted(scene.told, key=lambda r: r.call_id)
    assert [r["task"] for r in results(first)] == ["b", "a"]
    assert [r["task"] for r in results(second)] == ["c"]
    assert len(cast.of_lead) == 2


@on_virtual_time
async def test_a_spawn_may_stand_beside_other_tools() -> None:
    result: list[str] = []
    cast = Cast([[call("dig"), spawn("a"), call("look")], "thanks"], after(a=5))
    scene = await play(lead(cast, tools=[reader(), slow(20, result)]))
    assert {r.name: r.text for r in scene.told if r.name != "spawn_agents"} == {
        "dig": "dug",
        "look": "seen",
    }
    (spawned,) = (r for r in scene.told if r.name == "spawn_agents")
    assert [r["task"] for r in results(spawned)] == ["a"]
    assert scene.outcome.ended_ms - scene.outcome.created_ms == 20_000


@on_virtual_time
async def test_a_turn_without_sub_agents_goes_on_after_its_last_tool() -> None:
    result: list[str] = []
    scene = await play(lead(Cast([call("dig"), "thanks"]), tools=[slow(20, result)]))
    assert (scene.outcome.text, result) == ("thanks", ["dug"])


@on_virtual_time
async def test_a_result_that_comes_before_the_other_tools_are_done_is_counted_once() -> None:
    cast = Cast([[spawn("a"), call("dig"), spawn("b")], "thanks"], after(b=1))

    async def then(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(10)
        assert [c.state for c in (await retinue.tree(run)).children] == ["completed", "completed"]
        assert len(cast.of_lead) == 1
        await retinue.wait(run)
        steps = [s.entry async for s in retinue.steps(run, tree=False) if isinstance(s, Step)]
        ends = [e.event.child for e in steps if isinstance(e.event, ChildEnded) and not e.stale]
        assert len(ends) == len(set(ends)) == 2

    scene = await play(lead(cast, tools=[slow(20, [])]), then)
    spawned = [r for r in scene.told if r.name == "spawn_agents"]
    assert sorted(one["task"] for r in spawned for one in results(r)) == ["a", "b"]


@on_virtual_time
async def test_a_cancel_while_waiting_ends_after_the_last_child_and_asks_no_model() -> None:
    cast = Cast([spawn("a", "b", "done"), "thanks"], after(a=100, b=100))

    async def then(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(10)
        assert (await retinue.cancel(run)).state == "cancelled"
        assert [c.state for c in (await retinue.tree(run)).children] == [
            "cancelled",
            "cancelled",
            "completed",
        ]
        events = [
            s.entry.event async for s in retinue.steps(run, tree=False) if isinstance(s, Step)
        ]
        cancel = next(n for n, e in enumerate(events) if isinstance(e, CancelAsked))
        ends = [n for n, e in enumerate(events) if isinstance(e, ChildEnded)]
        assert [n > cancel for n in ends] == [False, True, True]
        assert ends[-1] == len(events) - 1, "the end of the last child is what ends the lead"
        await asyncio.sleep(1_000)

    scene = await play(lead(cast), then)
    assert scene.outcome.state == "cancelled"
    assert len(cast.of_lead) == 1, "the model is not called after a cancel"
    assert len(cast.of_children) == 3


@on_virtual_time
async def test_a_cancel_while_tools_still_run_stops_them_and_the_children() -> None:
    result: list[str] = []
    cast = Cast([[spawn("a", "b"), call("dig")], "thanks"], after(a=5, b=100))

    async def then(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(10)
        await retinue.cancel(run)
        await asyncio.sleep(1_000)

    scene = await play(lead(cast, tools=[slow(50, result)]), then)
    assert (scene.outcome.state, result, len(cast.of_lead)) == ("cancelled", [], 1)
    assert [c.state for c in scene.outcome.children] == ["completed", "cancelled"]


@on_virtual_time
async def test_what_is_written_to_a_waiting_lead_does_not_disturb_the_fan_in() -> None:
    cast = Cast([spawn("a", "b"), "thanks"], after(a=10, b=20))

    async def then(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(15)
        await retinue.send(run, "How far are you?")

    scene = await play(lead(cast), then)
    assert [r["task"] for r in scene.json] == ["a", "b"]
    assert [m.text for m in cast.of_lead[1].messages[2:]] == [
        scene.told[0].text,
        "How far are you?",
    ]


@on_virtual_time
async def test_a_lead_that_is_steered_away_still_hears_of_every_child_before_it_ends() -> None:
    cast = Cast([spawn("a", "b"), "I stop here.", "now all"], after(a=10, b=20))

    async def then(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(15)
        await retinue.send(run, "Stop waiting.", steer=True)

    scene = await play(lead(cast), then)
    assert [c.state for c in scene.outcome.children] == ["completed", "completed"]
    text = "\n".join(m.text for m in cast.of_lead[-1].messages)
    assert (text.count("did a"), text.count("did b")) == (1, 1)


@on_virtual_time
async def test_sub_agents_are_offered_no_spawn_tool_and_the_lead_no_submit_tool() -> None:
    cast = Cast([spawn("a", {"task": "b", "mode": "work"}), "thanks"])
    await play(lead(cast))
    assert [t.name for t in cast.of_lead[0].tools] == ["look", "spawn_agents", "artifact"]
    assert len(cast.of_children) == 2
    for request in cast.of_children:
        assert [t.name for t in request.tools] == [
            "look",
            "submit_result",
            "submit_error",
            "artifact",
        ]


@on_virtual_time
async def test_a_sub_agent_that_calls_the_spawn_tool_is_told_that_there_is_none() -> None:
    requests: list[str] = []

    def child(request: ModelRequest) -> Any:
        requests.append(request.messages[-1].text)
        return spawn("more") if request.turn == 0 else call("submit_result", result="alone")

    scene = await play(lead(Cast([spawn({"task": "a", "mode": "work"}), "thanks"], child)))
    assert success(scene) == "alone"
    assert "Unknown tool 'spawn_agents'" in requests[1]
    assert len(scene.outcome.children) == 1


@on_virtual_time
async def test_a_lead_that_calls_submit_result_gets_an_ordinary_result_and_goes_on() -> None:
    cast = Cast([call("submit_result", result="x"), call("submit_error", error="x"), "thanks"])
    scene = await play(lead(cast))
    assert scene.outcome.text == "thanks"
    assert [r.text.split("'")[1] for r in scene.told] == ["submit_result", "submit_error"]
    assert all(r.error and r.text.startswith("Unknown tool") for r in scene.told)


@on_virtual_time
async def test_a_sub_agent_starts_with_its_task_alone_and_our_instructions() -> None:
    cast = Cast([spawn(" Review it. "), "thanks"])
    scene = await play(lead(cast))
    (request,) = cast.of_children
    assert list(request.messages) == [UserMessage(text=" Review it. ")]
    assert "Lead them." not in request.instructions
    assert request.instructions.rstrip().endswith("it ends your run.")
    assert "submit_result" in request.instructions.split("\n\n")[-1]
    assert "submit_error" in request.instructions.split("\n\n")[-1]
    assert (request.agent, request.model) == (HELPER, "big")
    assert scene.json[0]["task"] == " Review it. "


@on_virtual_time
async def test_sub_agents_are_hidden_from_the_list_found_below_their_lead_and_deleted_with_it() -> (
    None
):
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(lead(Cast([spawn("look at the moon", "b"), "thanks"])), "Go.")
        scene = await played(retinue, run)
        assert [s.id async for s in retinue.runs()] == [run]
        assert [c.label for c in (await retinue.tree(run)).children] == ["look at the moon", "b"]
        await retinue.forget(run)
        for child in scene.outcome.children:
            with pytest.raises(NotFound):
                await retinue.messages(child.id)


@on_virtual_time
async def test_what_is_too_long_for_one_message_is_kept_whole_elsewhere() -> None:
    def child(request: ModelRequest) -> Any:
        return call("submit_result", result=f"{task_of(request)}é" * 20_000)

    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(lead(Cast([spawn("a", "b", "c"), "thanks"], child)), "Go.")
        scene = await played(retinue, run)
        for result in scene.json:
            text = result["outcome"]["success"]["result"]
            sha = text.rsplit("full text in artifact ", 1)[1].rstrip("]")
            whole = (await retinue.artifact(sha)).decode()
            assert whole == f"{result['task']}é" * 20_000
            assert whole.startswith(text.split("\n[truncated: ")[0])


EXAMPLES = {
    "several views of one module": [
        "Security of src/auth/.",
        "Maintainability of src/auth/.",
        "Speed of src/auth/.",
    ],
    "parts of a codebase": ["The database layer.", "The API layer.", "The core logic."],
    "one deep dive": ["Trace every error from the tools to the API."],
    "two approaches": ["Approach A: pros and cons.", "Approach B: pros and cons."],
    "personas": ["As a frontend developer.", "As a DevOps engineer.", "As a new team member."],
}


@pytest.mark.parametrize("tasks", EXAMPLES.values(), ids=list(EXAMPLES))
@on_virtual_time
async def test_the_uses_that_the_document_shows_work(tasks: list[str]) -> None:
    scene = await play(lead(Cast([spawn(*tasks), "thanks"])))
    assert [(r["task"], r["outcome"]["success"]["result"]) for r in scene.json] == [
        (t, f"did {t}") for t in tasks
    ]


def test_the_schema_says_what_is_taken() -> None:
    (spawning,) = FanoutFamily().tools()
    parameters = spawning.schema.parameters
    tasks = parameters["properties"]["tasks"]
    assert spawning.schema.name == "spawn_agents"
    assert parameters["required"] == ["tasks"]
    assert (tasks["type"], tasks["minItems"], tasks["maxItems"]) == ("array", 1, 10)
    one = tasks["items"]
    assert one["required"] == ["task"]
    assert list(one["properties"]) == ["task", "cwd", "mode", "model", "max_turns", "read_first"]
    assert one["properties"]["mode"]["enum"] == ["explore", "work"]
    assert one["properties"]["mode"]["default"] == "explore"
    assert one["properties"]["max_turns"]["minimum"] == 1
    assert "20 to explore and 50 to work" in one["properties"]["max_turns"]["description"]
    assert all(p["description"] for p in (tasks, *one["properties"].values()))
    assert not parameters["additionalProperties"] and not one["additionalProperties"]


def test_the_schemas_of_the_submit_tools_are_those_of_the_document() -> None:
    for submitting, name, field in zip(
        FanoutFamily().helper_tools(),
        ("submit_result", "submit_error"),
        ("result", "error"),
        strict=True,
    ):
        parameters = submitting.schema.parameters
        assert submitting.schema.name == name
        assert (parameters["required"], list(parameters["properties"])) == ([field], [field])
        assert parameters["properties"][field]["type"] == "string"
        assert submitting.schema.description


@on_virtual_time
async def test_the_guide_stands_in_the_leads_instructions_unless_it_or_the_family_is_off() -> None:
    guide = FanoutFamily().guide
    assert all(
        word in guide for word in ("spawn_agents", "poll", "yourself", "read_first", "explore")
    )
    for settings, options, output, offered in [
        ({}, {}, True, True),
        ({"guide": False}, {}, False, True),
        ({}, {"families": {"fanout": False}}, False, False),
        ({"enabled": False}, {"families": {"fanout": True}}, True, True),
    ]:
        cast = Cast(["hello"])
        await play(lead(cast, **settings), **options)  # type: ignore[arg-type]
        (request,) = cast.asked
        assert (guide in request.instructions) == output
        assert ("spawn_agents" in [t.name for t in request.tools]) == offered


def test_the_family_answers_to_its_name_and_to_its_profile() -> None:
    for name in ("fanout", "phoenix"):
        result = family(name)
        assert (type(result), result.name, result.tool_names) == (
            FanoutFamily,
            "fanout",
            ("spawn_agents",),
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout_seconds": 0},
        {"timeout_seconds": float("inf")},
        {"max_tasks": 0},
        {"explore_turns": 0},
        {"work_turns": 0},
        {"attempts": 0},
        {"grace_turns": -1},
        {"read_first_bytes": 0},
        {"on_restart": "maybe"},
        {"timeout": 5},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        family("fanout", **settings)


@on_virtual_time
async def test_a_lead_without_tools_of_its_own_may_still_ask_for_several_views() -> None:
    cast = Cast([spawn("a", "b"), "thanks"])
    agent = Agent("lead", model=Scripted(cast, name="big"), families=["fanout"])
    scene = await play(agent)
    assert [r["outcome"]["success"]["result"] for r in scene.json] == ["did a", "did b"]
    assert {t.name for t in cast.of_children[0].tools} == {
        "submit_result",
        "submit_error",
        "artifact",
    }
