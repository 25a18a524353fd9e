"""Who may spawn and with which tools: deny wins, an allow list is all there is, and a leaf cannot
spawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, ConfigError
from retinue.config import read_config
from retinue.core.messages import ToolMessage
from retinue.core.values import Budget, Permissions
from retinue.testing import Scripted, call
from retinue.tools.families.profiles import PROFILES, family
from tests.api.scripted_agents import agent, hiring, on_virtual_time
from tests.families.sessions_world import (
    SESSION_TOOLS,
    World,
    bash,
    pause,
    read,
    refusal,
    results,
    spawn,
    task_of,
    value_of,
)

PLAIN = {"read", "bash", "cron", "artifact"}
SPAWNERS = {
    "agent_spawn",
    "agent_fork",
    "delegate_tasks",
    "spawn_agents",
    "sessions_spawn",
    "subagent",
}
EVERY = ["agent", "delegate", "fanout", "subagent"]
CASES: list[tuple[dict[str, Any], dict[str, Any] | None, set[str]]] = [
    ({}, None, PLAIN),
    ({"tools_deny": ["cron"]}, None, PLAIN - {"cron"}),
    ({"tools_deny": ["gateway", "nonsense"]}, None, PLAIN),
    ({"tools_allow": ["read", "bash", "process"]}, None, {"read", "bash"}),
    ({"tools_allow": ["read", "bash"], "tools_deny": ["bash"]}, None, {"read"}),
    ({"tools_allow": ["read", "sessions_spawn", "sessions_list"]}, None, {"read"}),
    ({}, {"deny": ["bash"]}, PLAIN - {"bash"}),
    ({}, {"allow": ["bash"]}, {"bash"}),
    ({}, {"allow": ["bash", "read"], "deny": ["read"]}, {"bash"}),
    ({}, {"allow": ["bash", "sessions_spawn", "sessions_send"]}, {"bash"}),
    ({}, {"allow": []}, set()),
    ({"tools_deny": ["bash"]}, {"allow": ["bash", "read"]}, {"read"}),
    ({"tools_allow": ["read"]}, {"allow": ["bash", "read"]}, {"read"}),
    ({"default_deny": ["cron"], "tools_deny": ["bash"]}, {"deny": ["artifact"]}, {"read"}),
]


@pytest.mark.parametrize(
    ("settings", "lists", "expected"), CASES, ids=[str(n) for n in range(len(CASES))]
)
@on_virtual_time
async def test_deny_wins_and_an_allow_list_is_all_there_is(
    settings: dict[str, Any], lists: dict[str, Any] | None, expected: set[str]
) -> None:
    world = World(spawn("say x") if lists is None else spawn("say x", tools=lists), **settings)
    await world.go()
    assert world.offered("say x") == expected
    assert world.chat.texts == ["I say x"]


@on_virtual_time
async def test_a_child_cannot_call_what_is_denied_to_it() -> None:
    does = {"try": [[call("bash", command="rm"), call("read", path="a")], "tried"]}
    world = World(spawn("try"), does=does, tools_deny=["bash"])
    await world.go()
    (denied, value) = [m for m in world.of("try")[1].messages if isinstance(m, ToolMessage)]
    assert (denied.error, value.error, value.text) == (True, False, "the text of a")
    assert value_of(denied.text) == {
        "status": "forbidden",
        "error": "the tool 'bash' is not allowed for this session",
    }


@on_virtual_time
async def test_lists_that_leave_nothing_are_an_error_unless_nothing_is_asked_for() -> None:
    why = "it would have none of the allowed tools. Allow others, or none at all"
    for world in ({"tools_allow": ["process"]}, {"tools_allow": ["read"], "tools_deny": ["read"]}):
        assert await refusal(spawn("say x"), **world) == {"status": "error", "error": why}
    assert await refusal(spawn("say x", tools={"allow": ["nonsense"]})) == {
        "status": "error",
        "error": why,
    }


def orchestra(**settings: Any) -> World:
    """A child that spawns a child."""
    does = {"lead them": [spawn("say leaf"), call("sessions_yield"), "led"]}
    return World(spawn("lead them"), does=does, **settings)


@pytest.mark.parametrize("profile", ["clawdbot", "openclaw"])
@on_virtual_time
async def test_a_child_that_may_spawn_has_the_session_tools_and_its_leaf_has_none(
    profile: str,
) -> None:
    world = orchestra(profile=profile, max_spawn_depth=2)
    await world.go()
    assert world.offered("lead them") >= SESSION_TOOLS
    assert not world.offered("say leaf") & SESSION_TOOLS
    first = world.of("lead them")[0].messages[0].text
    assert "at depth 1/2" in first and "You may start subagents with sessions_spawn." in first
    last = world.of("say leaf")[0].messages[0].text
    assert "at depth 2/2" in last and "You cannot start subagents." in last


@on_virtual_time
async def test_what_is_denied_to_a_child_is_denied_to_its_children() -> None:
    does = {"lead them": [spawn("say leaf", tools={"allow": ["read", "bash", "cron"]}), "led"]}
    world = World(spawn("lead them", tools={"deny": ["bash"]}), does=does, max_spawn_depth=2)
    await world.go()
    assert world.offered("say leaf") == {"read", "cron"}


@on_virtual_time
async def test_an_allow_list_has_to_name_the_session_tools_like_any_other() -> None:
    allowed = ["read", "sessions_spawn", "sessions_yield"]
    world = orchestra(max_spawn_depth=2, tools_allow=allowed)
    await world.go()
    assert world.offered("lead them") == {*allowed, "artifact"}, (
        "whoever may spawn can read on where results are cut"
    )
    assert world.offered("say leaf") == {"read"}
    world = World(spawn("say x", tools={"allow": ["read"]}), max_spawn_depth=2)
    await world.go()
    assert world.offered("say x") == {"read"}


@on_virtual_time
async def test_no_child_has_the_tools_of_another_family() -> None:
    """Neither an isolated one, nor a fork, nor one that runs as somebody who has families of its
    own."""
    other = Agent("other", model="model of lead", tools=[read], families=["agent", "clawdbot"])
    for depth in (1, 2):
        world = World(
            [spawn("say a"), spawn("say b", context="fork"), spawn("say c", agentId="other")],
            profile="clawdbot",
            fields={
                "families": [family("clawdbot", max_spawn_depth=depth, allow_agents=["*"]), *EVERY]
            },
        )
        world.lead = Agent(
            "lead",
            model=Scripted(world.say, name="model of lead"),
            tools=[read, bash],
            staff=[other],
            families=world.fields["families"],
        )
        await world.go()
        assert {t.name for t in world.of_lead[0].tools} >= SPAWNERS
        spare = {"sessions_spawn"} if depth == 2 else set()
        for task in ("say a", "say b", "say c"):
            assert world.offered(task) & SPAWNERS <= spare, task
        assert world.offered("say b") & SPAWNERS == spare, (
            "a fork that may nest has this family's tools, no other"
        )


@on_virtual_time
async def test_an_agent_with_another_family_cannot_start_others_when_it_is_spawned() -> None:
    scout = Agent("scout", model="model of lead", tools=[read], families=["agent"])
    world = World(
        spawn("say x", agentId="scout"), allow_agents=["scout"], fields={"staff": [scout]}
    )
    await world.go()
    assert world.offered("say x") == {"read", "artifact"}


@on_virtual_time
async def test_a_leaf_cannot_start_others_with_a_tool_of_its_own_either() -> None:
    scout = agent("scout", ["here"])
    does = {"hire one": [call("hire", tasks=["look"]), "I could not"]}
    world = World(spawn("hire one"), does=does, fields={"tools": [hiring(scout)], "staff": [scout]})
    await world.go()
    (message,) = [m for m in world.of("hire one")[1].messages if isinstance(m, ToolMessage)]
    assert message.error and "cannot start children" in message.text


@on_virtual_time
async def test_a_fork_knows_the_conversation_and_calls_nothing_that_spawns() -> None:
    does = {"go on": [spawn("deeper"), "I could not"]}
    world = World(call("read", path="a"), spawn("go on", context="fork", cleanup="keep"), does=does)
    await world.go()
    first = world.of("go on")[0]
    assert [m.text for m in first.messages[:3]] == ["Go.", "", "the text of a"]
    assert first.instructions == world.of_lead[0].instructions
    assert not {t.name for t in first.tools} & SPAWNERS
    assert world.of("deeper") == []
    error = "sessions_spawn is not allowed at this depth (current depth: 1, max: 1)"
    assert results(world.of("go on")[1].messages)[-1] == {"status": "forbidden", "error": error}
    assert world.results[1]["childSessionKey"] == f"subagent:{world.results[1]['runId']}"


@on_virtual_time
async def test_a_fork_takes_nothing_from_the_defaults_of_its_agent() -> None:
    """A budget that is set for the whole run is not asked for once more, and a fork of a host
    ends."""
    fields = {"budget": Budget(tokens=100_000), "options": {"stay_open": True, "label": "the host"}}
    world = World(spawn("say x", context="fork", timeoutSeconds=10), fields=fields)
    async with world.open() as retinue:
        run = await retinue.spawn(world.lead, "Go.")
        with pytest.raises(TimeoutError):
            await retinue.wait(run, timeout=100)
        await retinue.cancel(run)
    assert (world.results[0]["status"], world.results[0]["reply"]) == ("ok", "x")


# who may spawn


@on_virtual_time
async def test_a_run_at_the_depth_limit_is_told_the_numbers() -> None:
    for limit in (1, 2):
        does = {f"go {n}": [spawn(f"go {n + 1}"), "gone"] for n in (1, 2)}
        world = World(spawn("go 1"), does=does, max_spawn_depth=limit, max_concurrent=4)
        await world.go()
        message = next(m for m in world.of(f"go {limit}")[1].messages if isinstance(m, ToolMessage))
        assert message.error and message.text == (
            '{"status":"forbidden","error":"sessions_spawn is not allowed at this depth '
            f'(current depth: {limit}, max: {limit})"}}'
        )
        assert world.of(f"go {limit + 1}") == []


@on_virtual_time
async def test_a_run_that_may_not_spawn_is_forbidden_to() -> None:
    """The machine refuses what the tool could not see."""
    world = World(spawn("say x"))
    await world.go(permissions=Permissions(may_spawn=False))
    error = "sessions_spawn is not allowed: you cannot spawn (current depth: 0)"
    assert world.results == [{"status": "forbidden", "error": error}]


@on_virtual_time
async def test_active_children_are_counted_and_those_that_ended_are_not() -> None:
    settings: Any = {"profile": "openclaw", "max_concurrent": 1}
    lines = [
        [spawn(f"after 10 say {n}") for n in range(5)],
        spawn("say x"),
        pause(15, spawn("say y")),
    ]
    world = World(*lines, **settings)
    await world.go()
    *five, sixth, seventh = world.results
    assert [r["status"] for r in five] == ["accepted"] * 5
    assert sixth == {
        "status": "forbidden",
        "error": "too many active children (5/5); wait for one to end",
    }
    assert seventh["status"] == "accepted"


@on_virtual_time
async def test_the_limit_of_children_holds_for_calls_of_one_turn() -> None:
    world = World([spawn(f"after 10 say {n}") for n in range(4)], max_children_per_agent=3)
    await world.go()
    assert sorted(r["status"] for r in world.results) == ["accepted"] * 3 + ["forbidden"]
    (refused,) = [r for r in world.results if r["status"] == "forbidden"]
    assert refused["error"] == "too many active children (3/3); wait for one to end"
    assert len(world.chat.texts) == 3


@on_virtual_time
async def test_only_agents_that_are_allowed_can_be_spawned() -> None:
    staff = [Agent(n, f"I am {n}.", model="model of lead", tools=[read]) for n in ("scout", "cook")]
    fields = {"staff": staff}
    world = World(spawn("say x", agentId="scout"), allow_agents=["scout"], fields=fields)
    await world.go()
    (first, *_) = world.of("say x")
    assert (first.agent, first.instructions) == ("scout", "I am scout.")
    refused = await refusal(
        spawn("say x", agentId="cook"), allow_agents=["scout", "baker"], fields=fields
    )
    assert refused == {
        "status": "forbidden",
        "error": "agentId 'cook' is not allowed (allowed: scout, baker)",
    }
    refused = await refusal(spawn("say x", agentId="cook"), fields=fields)
    assert refused == {
        "status": "forbidden",
        "error": "agentId 'cook' is not allowed (allowed: none)",
    }
    refused = await refusal(spawn("say x", agentId="ghost"), allow_agents=["*"], fields=fields)
    error = "unknown agent 'ghost'. Agents you can spawn: cook, lead, scout"
    assert refused == {"status": "error", "error": error}


@on_virtual_time
async def test_a_run_may_always_name_its_own_agent() -> None:
    does = {"lead them": [spawn("say leaf", agentId="lead"), "led"]}
    world = World(spawn("lead them", agentId="lead"), does=does, max_spawn_depth=2)
    await world.go()
    assert {r.agent for r in world.requests if r.path != "0"} == {"lead.sessions"}
    assert task_of(world.of("say leaf")[0]) == "say leaf"


# configuration


def settings_in(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "config.json5"
    file.write_text(text)
    return {f.name: f.settings for f in read_config(file).families}["sessions"]


def test_the_documents_configuration_is_read_as_it_stands(tmp_path: Path) -> None:
    text = """{
  agent: {
    subagents: {
      maxConcurrent: 1,
      tools: {
        // deny wins
        deny: ["gateway", "cron"],
        // if allow is set, it becomes allow-only (deny still wins)
        // allow: ["read", "bash", "process"]
      }
    }
  }
}"""
    settings = settings_in(tmp_path, text)
    assert (settings.max_concurrent, settings.tools_deny, settings.tools_allow) == (
        1,
        ("gateway", "cron"),
        None,
    )
    with_allow = text.replace("// allow", "allow").replace("maxConcurrent: 1", "maxConcurrent: 4")
    settings = settings_in(tmp_path, with_allow)
    assert (settings.max_concurrent, settings.tools_allow) == (4, ("read", "bash", "process"))


def test_the_later_keys_are_read_too(tmp_path: Path) -> None:
    keys = (
        "maxSpawnDepth: 2, maxChildrenPerAgent: 7, runTimeoutSeconds: 90, model: 'm', "
        "allowAgents: ['*']"
    )
    settings = settings_in(
        tmp_path, f"{{profiles: ['openclaw'], agent: {{subagents: {{{keys}}}}}}}"
    )
    assert (
        settings.max_spawn_depth,
        settings.max_children_per_agent,
        settings.run_timeout_seconds,
    ) == (
        2,
        7,
        90,
    )
    assert (settings.model, settings.allow_agents, settings.cleanup, settings.max_concurrent) == (
        "m",
        ("*",),
        "keep",
        8,
    )


@pytest.mark.parametrize(
    ("key", "bad", "good"),
    [
        ("max_concurrent", [0, -1, 1.5, "1", None], [1, 100]),
        ("max_spawn_depth", [0, 6, "2"], [1, 5]),
        ("max_children_per_agent", [0, 21], [1, 20, None]),
        ("run_timeout_seconds", [-1, float("nan"), float("inf"), 86_401], [0, 0.5, 86_400]),
        ("cleanup", ["remove", ""], ["keep", "delete"]),
        ("tools_deny", ["cron", 5, [5]], [[], ["cron"]]),
        ("tools_allow", ["read"], [[], None]),
        ("announce", ["nobody"], ["chat", "requester"]),
        ("nonsense", [1], []),
    ],
)
def test_settings_out_of_bounds_are_refused(key: str, bad: list[Any], good: list[Any]) -> None:
    for value in bad:
        with pytest.raises(ConfigError, match="Invalid settings of family 'sessions'"):
            family("sessions", **{key: value})
    for value in good:
        assert family("sessions", **{key: value}).settings is not None


def test_the_two_profiles_differ_in_these_defaults_only() -> None:
    document, today = family("clawdbot").settings, family("openclaw").settings
    assert document == family("sessions").settings
    assert PROFILES["clawdbot"] == ("sessions", {})
    both = {f: (getattr(document, f), getattr(today, f)) for f in document.__struct_fields__}
    assert {f: values for f, values in both.items() if values[0] != values[1]} == {
        "max_concurrent": (1, 8),
        "timeout_means": ("wait", "run"),
        "cleanup": ("delete", "keep"),
        "announce": ("chat", "requester"),
        "keys": ("plain", "agent"),
        "max_children_per_agent": (None, 5),
        "control": (False, True),
        "archive_after_minutes": (0, 60),
        "default_deny": (
            (),
            (
                "agents_list",
                "cron",
                "gateway",
                "memory_get",
                "memory_search",
                "session_status",
                "whatsapp_login",
            ),
        ),
    }
    assert family("clawdbot").helper_tools() == family("openclaw").helper_tools() == ()
    assert (document.max_spawn_depth, document.run_timeout_seconds, document.allow_agents) == (
        1,
        0,
        (),
    )
