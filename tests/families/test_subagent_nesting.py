"""Children of children: how deep they go, and that nobody regains a tool which somebody above gave
up."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from retinue import Actions, Agent, Context, Limits, Permissions, Retinue, tool
from retinue.core.messages import ToolCall
from retinue.core.values import SpawnLimits
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, VirtualClock, call
from tests.api.scripted_agents import on_virtual_time
from tests.families.subagent_world import (
    NESTING,
    PLAIN,
    TOOLS,
    Stage,
    many,
    one,
    pause,
    played,
    results,
    task,
)

DEEP = (
    "Maximum subagent recursion depth ({}) exceeded. Current depth: {}. Cannot spawn nested "
    "subagent."
)


def answers(request: ModelRequest) -> list[str]:
    """What the calls of a run were answered."""
    return [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]


@on_virtual_time
async def test_the_main_agent_has_two_levels_of_subagents_below_it() -> None:
    does = {"1": [one("2")], "2": [one("3")]}
    stage = Stage(one("1"), does=does)
    result = await stage.go()
    assert sorted(result.below) == ["1", "2"]
    assert result.result["metadata"]["recursion_depth"] == "1"
    (inner,) = answers(stage.of("1")[-1])
    assert msgspec.json.decode(inner)["metadata"]["recursion_depth"] == "2"
    (refused,) = answers(stage.of("2")[-1])
    assert refused == DEEP.format(3, 2)
    assert stage.of("3") == []


@pytest.mark.parametrize(
    "args", ["", "{", "null", '"x"', '{"label": 5}', '{"label": "l", "task_prompt": "3"}']
)
@on_virtual_time
async def test_the_deepest_children_are_told_of_the_depth_whatever_they_write(args: str) -> None:
    """Their tools are there, as in the document's diagram; with a list of tools and without
    executions left, too."""
    calls = [
        ToolCall(id=name, name=name, arguments_json=args)
        for name in ("subagent", "parallel_subagent")
    ]
    inner = one("2", allowed_tools=["look_up"])
    stage = Stage(one("1"), does={"1": [inner], "2": [calls]}, max_executions=2)
    result = await stage.go()
    assert stage.offered("1") == PLAIN | NESTING
    assert stage.offered("2") == {"look_up", "artifact"} | NESTING
    assert answers(stage.of("2")[-1]) == [DEEP.format(3, 2), "Maximum subagent depth 3 reached"]
    assert stage.of("3") == [] and sorted(result.below) == ["1", "2"]


@pytest.mark.parametrize("depth", range(1, 9))
@on_virtual_time
async def test_a_child_whose_depth_would_reach_the_limit_is_refused(depth: int) -> None:
    does = {str(n): [one(str(n + 1))] for n in range(1, 12)}
    stage = Stage(one("1"), does=does, max_depth=depth)
    result = await stage.go(rules=Limits(spawn_limits=SpawnLimits(depth=100)))
    assert len(result.below) == depth - 1
    if depth == 1:
        assert result.refusal == DEEP.format(1, 0)
    else:
        assert all(stage.offered(str(n)) == PLAIN | NESTING for n in range(1, depth))
        assert answers(stage.of(str(depth - 1))[-1]) == [DEEP.format(depth, depth - 1)]


@on_virtual_time
async def test_the_depth_is_counted_from_the_lead_wherever_it_stands() -> None:
    """A lead that is itself two below the root, and whose tools nobody took away."""
    stage = Stage(one("1"))

    @tool(restart="pure")
    async def hire(context: Context) -> Actions:
        """Hire the next one."""
        return context.spawn_actions(middle if context.spec.depth == 0 else stage.lead, "Go.")

    lines = [call("hire"), lambda q: q.messages[-1].text]

    def script(request: ModelRequest) -> Any:
        line: Any = lines[min(request.turn, 1)]
        return line(request) if callable(line) else line

    def inner(request: ModelRequest) -> Any:
        return one("1") if request.turn == 0 else request.messages[-1].text

    stage.lead = Agent(
        "lead", model=Scripted(inner, name="in"), tools=TOOLS, families=stage.lead.families
    )
    middle = Agent("middle", model=Scripted(script, name="mid"), tools=[hire], staff=[stage.lead])
    top = Agent("top", model=Scripted(script, name="top"), tools=[hire], staff=[middle])
    async with Retinue(clock=VirtualClock()) as retinue:
        assert msgspec.json.decode((await retinue.run(top, "Go.")).text)["success"] is True
        batch = Scripted(lambda q: many("1") if q.turn == 0 else q.messages[-1].text, name="batch")
        stage.lead = Agent("batcher", model=batch, tools=TOOLS, families=stage.lead.families)
        middle = Agent(
            "middle2", model=Scripted(script, name="mid2"), tools=[hire], staff=[stage.lead]
        )
        top = Agent("top2", model=Scripted(script, name="top2"), tools=[hire], staff=[middle])
        assert msgspec.json.decode((await retinue.run(top, "Go.")).text)["successful"] == 1


@on_virtual_time
async def test_a_limit_of_the_machine_is_told_in_the_same_words() -> None:
    for lead_says, text in (
        (one("1"), DEEP.format(3, 0)),
        (many("1"), "Maximum subagent depth 3 reached"),
    ):
        assert (await Stage(lead_says).go(permissions=Permissions(depth=0))).refusal == text


@on_virtual_time
async def test_without_a_list_a_child_has_all_tools_of_its_parent() -> None:
    stage = Stage(one("a"))
    await stage.go()
    assert stage.offered("a") == PLAIN | NESTING


@on_virtual_time
async def test_with_a_list_a_child_has_those_tools_and_can_still_delegate() -> None:
    stage = Stage(
        one("a", allowed_tools=["look_up", "look_up"]), does={"a": [call("write_down", text="x")]}
    )
    await stage.go()
    assert stage.offered("a") == {"look_up", "artifact"} | NESTING
    (refused,) = answers(stage.of("a")[-1])
    assert refused == "Tool 'write_down' is not available to this subagent"


@on_virtual_time
async def test_an_empty_list_leaves_no_tool_that_does_anything() -> None:
    stage = Stage(one("a", allowed_tools=[]), does={"a": [one("b")]})
    await stage.go()
    assert stage.offered("a") == {"artifact"} | NESTING
    assert stage.offered("b") == {"artifact"} | NESTING


@on_virtual_time
async def test_a_grandchild_does_not_regain_what_its_parent_was_not_given() -> None:
    stage = Stage(
        one("a", allowed_tools=["look_up"]),
        does={"a": [one("b")], "b": [call("write_down", text="x")]},
    )
    await stage.go()
    assert stage.offered("b") == {"look_up", "artifact"} | NESTING
    assert answers(stage.of("b")[-1])[0] == "Tool 'write_down' is not available to this subagent"


@pytest.mark.parametrize("batch", [False, True])
@on_virtual_time
async def test_a_grandchild_does_not_regain_it_by_name_either(batch: bool) -> None:
    named = task("b", allowed_tools=["look_up", "write_down"])
    again = many(named) if batch else call("subagent", **named)
    stage = Stage(one("a", allowed_tools=["look_up"]), does={"a": [again]})
    result = await stage.go()
    (refused,) = answers(stage.of("a")[-1])
    assert refused == ("tasks[0]: " if batch else "") + "Unknown tool in allowed_tools: write_down"
    assert sorted(result.below) == ["a"]


@on_virtual_time
async def test_what_is_taken_from_the_lead_is_taken_from_everybody_below_it() -> None:
    stage = Stage(one("a"), does={"a": [one("b")]})
    await stage.go(permissions=Permissions(deny=("write_down", "parallel_subagent")))
    assert stage.offered("a") == PLAIN - {"write_down"} | {"subagent"}
    assert stage.offered("b") == PLAIN - {"write_down"} | {"subagent"}


@on_virtual_time
async def test_a_list_brings_back_nothing_that_the_lead_lost() -> None:
    """Neither the second tool that delegates nor the one that reads on."""
    access = Permissions(tools=("look_up", "subagent", "write_down"))
    stage = Stage(one("a", allowed_tools=["look_up"]), does={"a": [one("b", allowed_tools=[])]})
    result = await stage.go(permissions=access)
    assert stage.offered("a") == {"look_up", "subagent"}
    assert stage.offered("b") == {"subagent"}
    assert result.result["success"] is True


@on_virtual_time
async def test_what_is_taken_while_a_child_works_is_gone_for_its_children_too() -> None:
    stage = Stage(
        one("a"), does={"a": [one("b")], "b": [call("write_down", text="x")]}, seconds=10.0
    )

    async def take(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(15)
        await retinue.restrict(run, Permissions(deny=("write_down",)))

    await stage.go(take)
    assert "write_down" not in stage.offered("b")
    assert answers(stage.of("b")[-1])[0] == "Tool 'write_down' is not available to this subagent"


@on_virtual_time
async def test_a_child_never_holds_the_tools_of_another_family() -> None:
    model = Stage(one("a", allowed_tools=["spawn_agents"]), one("a"))
    lead = Agent(
        "lead",
        model=model.model,
        tools=TOOLS,
        families=[*model.lead.families, "phoenix", "meepo", "meerkat"],
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        output = await played(retinue, await retinue.spawn(lead, "Go."))
    assert output.told[0].text == "Unknown tool in allowed_tools: spawn_agents"
    assert model.offered("a") == PLAIN | NESTING


@on_virtual_time
async def test_a_family_that_is_off_offers_nothing() -> None:
    stage = Stage(one("a"))
    result = await stage.go(families={"subagent": False})
    assert {t.name for t in stage.requests[0].tools} == PLAIN
    assert result.told[0].text.startswith("Refused: ") and result.below == {}


@pytest.mark.parametrize("seed", range(6))
@on_virtual_time
async def test_no_random_tree_of_lists_ever_widens(seed: int) -> None:
    """Each helper names tools at random, also such that it does not have; whoever runs holds a part
    of its parent's."""
    r = random.Random(seed)
    names = ["look_up", "write_down", "break_down", "artifact", "subagent", "nonsense"]
    result = iter(range(10_000))

    def ask(n: int) -> ToolCall:
        tasks = []
        for _ in range(n):
            allowed = r.choice(
                [None, r.sample(names[:4], r.randint(0, 4)), r.sample(names, r.randint(0, 6))]
            )
            tasks.append(task(f"t{next(result)}", allowed_tools=allowed))
        return (
            call("parallel_subagent", tasks=tasks)
            if n > 1 or r.random() < 0.5
            else call("subagent", **tasks[0])
        )

    amounts: dict[str, set[str]] = {}
    targets: dict[str, set[str]] = {}
    wrong: list[Any] = []

    def script(request: ModelRequest) -> Any:
        if request.purpose != "turn":
            return "end"
        mine = {t.name for t in request.tools}
        allowed = targets.get(request.messages[0].text, PLAIN)
        parent = amounts.get(request.path.rpartition("/")[0], mine)
        if (
            amounts.setdefault(request.path, mine) != mine
            or not mine <= parent
            or mine & PLAIN - {"artifact"} - allowed
        ):
            wrong.append((request.path, mine, parent, allowed))
        if request.turn >= 3 or len(amounts) > 60:
            return "end"
        question = ask(r.randint(1, 3))
        args = msgspec.json.decode(question.arguments_json)
        for one_task in args.get("tasks", [args]):
            if one_task["allowed_tools"] is not None:
                targets[one_task["task_prompt"]] = set(one_task["allowed_tools"])
        return question

    stage = Stage(max_depth=5)
    stage.lead = Agent(
        "lead", model=Scripted(script, name="m"), tools=TOOLS, families=stage.lead.families
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(stage.lead, "Go.")
        assert outcome.state == "completed"
    assert wrong == []
    assert len(amounts) > 5 and max(path.count("/") for path in amounts) <= 4


@on_virtual_time
async def test_results_come_up_through_all_levels() -> None:
    does = {"a": [many("b", "c"), "read both"]}
    stage = Stage(one("a"), does=does, sums={"a": lambda q: q.messages[2].text})
    result = await stage.go()
    inner = msgspec.json.decode(result.result["output"])
    assert [line["output"] for line in inner["results"]] == ["sum of b", "sum of c"]


@on_virtual_time
async def test_the_end_of_a_parent_ends_everybody_below_it() -> None:
    stage = Stage(
        one("a"), does={"a": [many("b", "c")], "b": pause(100, "x"), "c": pause(100, "x")}
    )

    async def cancel(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(10)
        await retinue.cancel(run)

    result = await stage.go(cancel)
    assert result.outcome.state == "cancelled"
    assert {o.state for o in result.below.values()} == {"cancelled"} and len(result.below) == 3


@on_virtual_time
async def test_a_child_that_fails_below_a_child_is_a_result_for_that_child() -> None:
    stage = Stage(one("a"), does={"a": [one("b"), "went on"], "b": RuntimeError("no")})
    result = await stage.go()
    assert result.result["success"] is True
    (inner,) = [m for m in stage.of("a")[1].messages if type(m).__name__ == "ToolMessage"]
    assert results([inner])[0]["error"] == "Subagent task execution failed: RuntimeError: no"  # type: ignore[list-item]
