"""How many sub-agents there may be and how deep, and which tools they hold: the limits and policies
of `agent`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from retinue import Agent, Limits, Origin, Permissions, Retry
from retinue.core.messages import ToolMessage
from retinue.core.values import SpawnLimits
from retinue.models.base import ModelRequest
from retinue.testing import call
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.agent_world import ALL, LIMIT, World, about, fork, pause, refusal, spawn, wait
from tests.families.delegate_world import Recorder

LONG = "after 500 say x"
FORK_LIMIT = "Cannot fork agent: concurrency or depth limit reached"
WIDE = {"max_concurrent_agents": 100, "max_children_per_agent": 100}


def states(results: list[Any]) -> list[str]:
    return [r if isinstance(r, str) else r["state"] for r in results]


def tools_of(request: ModelRequest) -> list[str]:
    return [t.name for t in request.tools]


# how many


@pytest.mark.parametrize("together", [True, False])
@on_virtual_time
async def test_a_sixth_child_is_refused_and_not_queued(together: bool) -> None:
    calls = [spawn(LONG)] * 6
    world = World(calls) if together else World(*calls)
    outcome = await world.go()
    assert states(world.results) == ["running"] * 5 + [LIMIT]
    assert len(outcome.children) == 5


@on_virtual_time
async def test_forks_and_spawns_count_together() -> None:
    world = World(
        [spawn(LONG), fork(LONG), spawn(LONG), fork(LONG), spawn(LONG)], fork(LONG), spawn(LONG)
    )
    await world.go()
    assert states(world.results) == ["running"] * 5 + [FORK_LIMIT, LIMIT]


@on_virtual_time
async def test_a_place_is_free_again_once_a_child_has_ended() -> None:
    lines = [
        [spawn("after 10 say x")] * 2 + [spawn(LONG)] * 3,
        pause(20, spawn("say x")),
        about("agent_cancel", 4),
    ]
    world = World(*lines, spawn("say y"), spawn("say z"))
    await world.go()
    assert states(world.results[5:6]) == ["running"]
    assert states(world.results[7:]) == ["running", "running"]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "limit", ["max_concurrent_agents", "max_concurrent_ops", "max_children_per_agent"]
)
@on_virtual_time
async def test_each_limit_of_concurrency_refuses_by_itself(limit: str, together: bool) -> None:
    limits = {"max_concurrent_ops": 100, **WIDE, limit: 2}
    calls = [spawn(LONG), fork(LONG), spawn(LONG), fork(LONG)]
    world = (
        World(calls, concurrency_limits=limits)
        if together
        else World(*calls, concurrency_limits=limits)
    )
    await world.go()
    assert states(world.results) == ["running", "running", LIMIT, FORK_LIMIT]


@pytest.mark.parametrize(
    "limit", ["max_concurrent_agents", "max_concurrent_ops", "max_children_per_agent"]
)
@on_virtual_time
async def test_a_limit_of_none_at_all_refuses_before_the_prompt_is_read(limit: str) -> None:
    assert await refusal(spawn(" "), concurrency_limits={limit: 0}) == LIMIT
    assert await refusal(fork(" "), concurrency_limits={limit: 0}) == FORK_LIMIT


@on_virtual_time
async def test_eight_agents_may_run_at_once_where_one_parent_may_have_them_all() -> None:
    world = World([spawn(LONG)] * 9, concurrency_limits={"max_children_per_agent": 100})
    await world.go()
    assert states(world.results) == ["running"] * 8 + [LIMIT]


@on_virtual_time
async def test_thirty_two_operations_may_run_at_once() -> None:
    world = World([spawn(LONG)] * 33, concurrency_limits=WIDE)
    await world.go()
    assert states(world.results) == ["running"] * 32 + [LIMIT]


@on_virtual_time
async def test_eight_agents_of_one_tree_may_run_at_once() -> None:
    """Two children that start three each, and the lead: the ninth agent of the tree is refused,
    whoever asks for it."""
    texts: list[str] = []

    def nest(request: ModelRequest) -> Any:
        if request.turn == 0:
            return [spawn(LONG)] * 3
        texts.extend(m.text for m in request.messages if isinstance(m, ToolMessage) and m.error)
        return call("rest", seconds=100.0) if request.turn == 1 else "done"

    rich = {"max_tokens": 1_000_000}
    lines = [[spawn("nest", budget=rich)] * 2, pause(1, spawn(LONG))]
    world = World(*lines, does={"nest": nest}, grant_spawn_tools=True)
    await world.go()
    assert states(world.results) == ["running", "running", LIMIT]
    assert texts == []


@on_virtual_time
async def test_a_runtime_can_be_narrower_than_the_family() -> None:
    world = World([spawn(LONG)] * 3)
    await world.go(rules=Limits(spawn_limits=SpawnLimits(children=2)))
    assert states(world.results) == ["running", "running", LIMIT]


@on_virtual_time
async def test_after_five_equal_failures_in_a_row_no_other_is_started() -> None:
    lines = [
        spawn("break"),
        wait(),
        *[spawn("break"), call("rest", seconds=400.0)] * 4,
        spawn("say x"),
    ]
    world = World(*lines, does={"break": ValueError("no")})
    await world.go(rules=Limits(breaker_ms=3_600_000))
    assert world.results[-1].startswith(
        "Failed to spawn sub-agent: the last sub-agents all failed with the same error"
    )


# how deep


def nesting(depth: list[int], prompts: list[list[str]]) -> Any:
    """A child that starts another of its own kind as long as it can, and keeps what it was
    offered."""

    def nest(request: ModelRequest) -> Any:
        prompts.append(tools_of(request))
        depth.append(request.path.count("/"))
        if request.turn == 0 and "agent_spawn" in tools_of(request):
            return spawn("nest")
        return f"depth {request.path.count('/')}"

    return nest


@on_virtual_time
async def test_by_default_a_child_is_offered_no_tool_of_the_family() -> None:
    world = World([spawn("say x"), fork("say y")])
    await world.go()
    assert tools_of(world.of("say x")[0]) == ["look_up", "rest", "artifact"]
    assert tools_of(world.of("say y")[0]) == ["look_up", "rest", "artifact"]


@pytest.mark.parametrize("start", [spawn, fork])
@on_virtual_time
async def test_a_child_that_calls_a_tool_of_the_family_all_the_same_finds_none(start: Any) -> None:
    texts: list[str] = []

    def try_it(request: ModelRequest) -> Any:
        if request.turn == 0:
            return [call(name, prompt="x", agent_id="x") for name in ALL]
        texts.extend(
            m.text
            for m in request.messages
            if isinstance(m, ToolMessage) and m.call_id.startswith("c0")
        )
        return "done"

    world = World(start("try it"), does={"try it": try_it})
    outcome = await world.go()
    assert len(texts) == 8
    for name, text in zip(ALL, texts, strict=True):
        assert text == f"Tool not found: {name}" or text.startswith(f"Unknown tool '{name}'")
    assert len(outcome.children) == 1
    assert outcome.tree_turns == len(world.requests), "nobody else has worked"


@on_virtual_time
async def test_where_nesting_is_wired_it_ends_three_levels_below_the_lead() -> None:
    depth: list[int] = []
    offered: list[list[str]] = []
    world = World(spawn("nest"), does={"nest": nesting(depth, offered)}, grant_spawn_tools=True)
    await world.go()
    first = {d: tools for d, tools in reversed(list(zip(depth, offered, strict=True)))}
    assert sorted(first) == [1, 2, 3]
    assert set(ALL) <= set(first[1]) and set(ALL) <= set(first[2])
    assert not set(ALL) & set(first[3]), "who may not spawn is not offered the tools"


@on_virtual_time
async def test_the_depth_is_a_setting() -> None:
    depth: list[int] = []
    world = World(
        spawn("nest"),
        does={"nest": nesting(depth, [])},
        grant_spawn_tools=True,
        concurrency_limits={"max_depth": 1},
    )
    await world.go()
    assert set(depth) == {1}
    assert await refusal(spawn("say x"), concurrency_limits={"max_depth": 0}) == LIMIT


@on_virtual_time
async def test_wired_nesting_can_be_forbidden() -> None:
    world = World([spawn("say x"), fork("say y")], grant_spawn_tools=True, allow_nested_spawn=False)
    await world.go()
    for prompt in ("say x", "say y"):
        assert not set(ALL) & set(tools_of(world.of(prompt)[0]))


@on_virtual_time
async def test_a_grandchild_is_listed_by_its_own_parent_with_its_depth() -> None:
    records: list[dict[str, Any]] = []

    def nest(request: ModelRequest) -> Any:
        if request.turn < 2:
            return [spawn("say deep"), call("agent_list")][request.turn]
        records.append(
            json.loads([m for m in request.messages if isinstance(m, ToolMessage)][1].text)
        )
        return "nested"

    world = World(
        spawn("nest"), wait(), call("agent_list"), does={"nest": nest}, grant_spawn_tools=True
    )
    await world.go()
    assert [a["depth"] for a in records[0]["agents"]] == [2]
    assert [a["depth"] for a in world.results[2]["agents"]] == [1], "a parent sees its own children"


# which tools


@on_virtual_time
async def test_without_a_policy_a_child_inherits_all_tools_of_its_parent() -> None:
    world = World(
        [
            spawn("say x"),
            spawn("say y", tool_access={"policy": "inherit"}),
            spawn("say z", tool_access=None),
        ]
    )
    await world.go()
    for prompt in ("say x", "say y", "say z"):
        assert tools_of(world.of(prompt)[0]) == ["look_up", "rest", "artifact"]


@pytest.mark.parametrize("start", [spawn, fork])
@pytest.mark.parametrize("stringified", [False, True])
@pytest.mark.parametrize(
    ("policy", "tools", "amounts"),
    [
        ("allow_list", ["look_up"], ["look_up"]),
        ("allow_list", ["rest", "look_up"], ["look_up", "rest"]),
        ("allow_list", [], []),
        ("allow_list", ["look_up", "shell"], ["look_up"]),
        ("allow_list", ["look_up", "agent_spawn", "agent_fork"], ["look_up"]),
        ("deny_list", ["look_up"], ["rest", "artifact"]),
        ("deny_list", [], ["look_up", "rest", "artifact"]),
        ("deny_list", ["shell"], ["look_up", "rest", "artifact"]),
    ],
)
@on_virtual_time
async def test_a_policy_gives_a_child_those_tools_and_no_others(
    policy: str, tools: list[str], amounts: list[str], stringified: bool, start: Any
) -> None:
    access: Any = {"policy": policy, "tools": tools}
    world = World(start("say x", tool_access=json.dumps(access) if stringified else access))
    await world.go()
    assert states(world.results) == ["running"]
    assert tools_of(world.of("say x")[0]) == amounts


@on_virtual_time
async def test_a_denied_tool_looks_as_if_it_were_not_there() -> None:
    texts: list[str] = []

    def try_it(request: ModelRequest) -> Any:
        if request.turn == 0:
            return call("rest", seconds=1.0)
        texts.append(request.messages[-1].text)
        return "done"

    world = World(
        spawn("try", tool_access={"policy": "deny_list", "tools": ["rest"]}), does={"try": try_it}
    )
    await world.go()
    assert texts == ["Tool not found: rest"]


@on_virtual_time
async def test_a_grandchild_never_regains_what_its_parent_was_denied() -> None:
    allow = {"policy": "allow_list", "tools": ["look_up", "agent_spawn"]}
    world = World(
        spawn("nest", tool_access=allow),
        does={"nest": [spawn("say deep", tool_access={"policy": "inherit"}), "nested"]},
        grant_spawn_tools=True,
    )
    await world.go()
    assert tools_of(world.of("nest")[0]) == ["look_up", "agent_spawn", "artifact"], (
        "an allow list has to name spawn tools too"
    )
    assert tools_of(world.of("say deep")[0]) == ["look_up", "agent_spawn", "artifact"]


@on_virtual_time
async def test_what_was_taken_from_the_lead_is_not_inherited() -> None:
    world = World([spawn("say x"), fork("say y")])
    await world.go(permissions=Permissions(deny=("rest",)))
    assert (
        tools_of(world.of("say x")[0]) == tools_of(world.of("say y")[0]) == ["look_up", "artifact"]
    )


@on_virtual_time
async def test_a_fork_holds_no_tool_of_another_family_either() -> None:
    families: list[Any] = [family("agent"), "delegate", "fanout", "sessions", "subagent"]
    world = World([spawn("say x"), fork("say y")], fields={"families": families})
    await world.go()
    for prompt in ("say x", "say y"):
        assert tools_of(world.of(prompt)[0]) == ["look_up", "rest", "artifact"]


@on_virtual_time
async def test_a_lead_without_tools_can_delegate_too() -> None:
    world = World([spawn("say x"), fork("say y")], fields={"tools": []})
    await world.go()
    assert states(world.results) == ["running", "running"]
    assert tools_of(world.of("say x")[0]) == []


# what else passes on


@on_virtual_time
async def test_a_system_prompt_of_its_own_replaces_the_inherited_one() -> None:
    lines = [
        [
            spawn("say a", system_prompt="Be brief."),
            spawn("say b", system_prompt=""),
            spawn("say c"),
        ]
    ]
    world = World(*lines)
    await world.go()
    assert [world.of(f"say {x}")[0].instructions for x in "abc"] == ["Be brief.", "", "Lead well."]
    none = World(*lines, inherit_system_prompt=False)
    await none.go()
    assert [none.of(f"say {x}")[0].instructions for x in "abc"] == ["Be brief.", "", ""]


@on_virtual_time
async def test_a_child_inherits_what_its_parents_run_was_told_and_a_fork_exactly_that() -> None:
    world = World([spawn("say x"), fork("say y")])
    await world.go(instructions="Speak French.")
    assert [world.of(p)[0].instructions for p in ("say x", "say y")] == ["Speak French."] * 2
    world = World([spawn("say x"), fork("say y")], enabled=False)
    await world.go(families={"agent": True})
    assert world.of("say x")[0].instructions == "Lead well.", (
        "nothing about tools that it does not have"
    )
    assert world.of("say y")[0].instructions == world.of_lead[0].instructions


@on_virtual_time
async def test_a_nested_child_inherits_the_system_prompt_that_its_parent_was_given() -> None:
    does = {"nest": [spawn("say deep"), "nested"]}
    world = World(spawn("nest", system_prompt="Be brief."), does=does, grant_spawn_tools=True)
    await world.go()
    assert world.of("say deep")[0].instructions == "Be brief."


@on_virtual_time
async def test_a_child_works_where_its_parent_works_and_has_its_retries() -> None:
    world = World([spawn("say x"), fork("say y")])
    await world.go(cwd="/somewhere", retry=Retry(attempts=2))
    for reply in world.results:
        spec, _ = await world.row(reply["agent_id"])
        assert (spec.request.cwd, spec.request.retry.attempts) == ("/somewhere", 2)


@on_virtual_time
async def test_nothing_is_announced_or_hosted_because_the_lead_is() -> None:
    options = {
        "announce": True,
        "stay_open": True,
        "group": "g",
        "retention": "delete",
        "tell_parent": False,
    }
    world = World([spawn("say x"), fork("say y")], fields={"options": options})
    async with world.open(channels={"hook": Recorder()}) as retinue:
        run = await retinue.spawn(world.lead, "Go.", origin=Origin(channel="hook"))
        await asyncio.sleep(10)
        children = (await retinue.tree(run)).children
        await retinue.cancel(run)
    assert [c.state for c in children] == ["completed", "completed"], (
        "neither hosts, and both are kept"
    )
    assert len(world.news) == 2
    for child in children:
        spec, _ = await world.row(child.id)
        assert (spec.request.announce, spec.request.stay_open, spec.request.group) == (
            False,
            False,
            "",
        )


def test_an_agent_can_be_made_with_the_family_by_name() -> None:
    assert Agent("x", families=["agent"]).family_list[0].tool_names == ALL
