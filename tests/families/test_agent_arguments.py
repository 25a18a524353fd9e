"""What the tools of the family `agent` say to calls that they cannot take, and in which order they
look."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue import Agent
from retinue.core.messages import ToolCall, ToolMessage
from retinue.testing import Scripted, call
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.agent_world import ALL, World, fork, ids, refusal, spawn, wait

NOBODY = "019467d9-7e3a-7000-8000-000000000000"
FULL = {"max_concurrent_agents": 0}
NOTHING = {"policy": "allow_list", "tools": ["-"]}
OPUS = {"profile": "meerkat", "model": "claude-opus-5-5"}


# the order of the checks

ORDER: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"concurrency_limits": FULL},
        {"prompt": 5, "host_mode": True, "provider": "x"},
        "Invalid parameters: Expected `str`, got `int` - at `$.prompt`",
    ),
    (
        {"concurrency_limits": FULL},
        {"prompt": " ", "host_mode": True, "provider": "x"},
        "Cannot spawn sub-agent: concurrency or depth limit reached",
    ),
    ({}, {"prompt": " \n", "host_mode": True, "provider": "x"}, "Prompt cannot be empty"),
    (
        {},
        {"prompt": "p", "host_mode": True, "provider": "x", "model": "y"},
        "host_mode requires comms to be enabled for sub-agents",
    ),
    ({}, {"prompt": "p", "provider": "Mistral", "model": "y"}, "Invalid provider: Mistral"),
    (
        {},
        {
            "prompt": "p",
            "provider": "Claude",
            "model": "gpt-6.1-sol",
            "tool_access": NOTHING,
        },
        "Model 'gpt-6.1-sol' is not in allowlist for provider 'anthropic'. "
        "Allowed models: claude-opus-5-5, claude-sonnet-5-5, claude-haiku-5-5",
    ),
    (
        {},
        {"prompt": "p", "model": "claude-sonnet-5-5", "tool_access": NOTHING},
        "Failed to create LLM client: No API key for anthropic. "
        "Set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN.",
    ),
    (
        {},
        {"prompt": "p", "tool_access": NOTHING},
        "Failed to spawn sub-agent: none of the requested tools can be given to it",
    ),
]


@pytest.mark.parametrize(("settings", "args", "text"), ORDER)
@on_virtual_time
async def test_a_spawn_is_checked_in_the_order_of_the_document(
    settings: dict[str, Any], args: dict[str, Any], text: str
) -> None:
    assert await refusal(call("agent_spawn", **args), **OPUS, **settings) == text


FORK_ORDER: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"concurrency_limits": FULL},
        {"prompt": " ", "provider": "claude"},
        "Invalid parameters: Invalid enum value 'claude' - at `$.provider`",
    ),
    (
        {"concurrency_limits": FULL},
        {"prompt": " ", "model": "y"},
        "Cannot fork agent: concurrency or depth limit reached",
    ),
    ({}, {"prompt": "\t", "model": "y"}, "Fork prompt cannot be empty"),
    (
        {},
        {"prompt": "p", "provider": "openai", "model": "claude-opus-5-5"},
        "Model 'claude-opus-5-5' is not in allowlist for provider 'openai'. Allowed models: "
        "gpt-6.1-sol, gpt-6.1-terra",
    ),
    (
        {},
        {"prompt": "p", "provider": "gemini"},
        "Failed to create LLM client: No API key for gemini. Set GEMINI_API_KEY or GOOGLE_API_KEY.",
    ),
    (
        {},
        {"prompt": "p", "tool_access": NOTHING},
        "Failed to spawn forked agent: none of the requested tools can be given to it",
    ),
]


@pytest.mark.parametrize(("settings", "args", "text"), FORK_ORDER)
@on_virtual_time
async def test_a_fork_is_checked_in_the_same_order_with_its_own_words(
    settings: dict[str, Any], args: dict[str, Any], text: str
) -> None:
    assert await refusal(call("agent_fork", **args), **OPUS, **settings) == text


async def deputy(line: ToolCall, **settings: Any) -> str:
    """What a child of the lead is told that has the tools of the family."""
    world = World(
        spawn("nest"), wait(), does={"nest": [line, "done"]}, grant_spawn_tools=True, **settings
    )
    await world.go()
    (last,) = [m for m in world.of("nest")[1].messages if isinstance(m, ToolMessage)]
    assert last.error
    return last.text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (spawn(" "), "Nested spawning is not allowed at this depth"),
        (fork(" "), "Nested forking is not allowed at this depth"),
    ],
)
@on_virtual_time
async def test_who_may_not_nest_is_told_so_before_its_prompt_is_read(
    line: ToolCall, text: str
) -> None:
    assert await deputy(line, allow_nested_spawn=False) == text


@pytest.mark.parametrize(
    ("line", "verb"), [(spawn("say x"), "spawn sub-agent"), (fork("say x"), "fork agent")]
)
@on_virtual_time
async def test_the_depth_limit_comes_before_the_rule_about_nesting(
    line: ToolCall, verb: str
) -> None:
    text = await deputy(line, allow_nested_spawn=False, concurrency_limits={"max_depth": 1})
    assert text == f"Cannot {verb}: concurrency or depth limit reached"


# arguments that are no arguments

MALFORMED: list[tuple[str, str, str]] = [
    ("agent_spawn", "{}", "Invalid parameters: Object missing required field `prompt`"),
    ("agent_spawn", '{"prompt": null}', "Expected `str`, got `null` - at `$.prompt`"),
    ("agent_spawn", '{"prompt": ["x"]}', "Expected `str`, got `array` - at `$.prompt`"),
    ("agent_spawn", '{"prompt": "x", "budget": 5}', "at `$.budget`"),
    (
        "agent_spawn",
        '{"prompt": "x", "budget": {"max_tokens": -1}}',
        "Expected `int` >= 0 - at `$.budget.max_tokens`",
    ),
    ("agent_spawn", '{"prompt": "x", "budget": {"max_turns": 1.5}}', "at `$.budget.max_turns`"),
    (
        "agent_spawn",
        '{"prompt": "x", "budget": {"max_tool_calls": "3"}}',
        "at `$.budget.max_tool_calls`",
    ),
    (
        "agent_spawn",
        '{"prompt": "x", "budget": "many"}',
        "`budget` is a string but not valid JSON",
    ),
    ("agent_spawn", '{"prompt": "x", "host_mode": "yes"}', "at `$.host_mode`"),
    ("agent_spawn", '{"prompt": "x", "system_prompt": {}}', "at `$.system_prompt`"),
    (
        "agent_spawn",
        '{"prompt": "x", "tool_access": "inherit"}',
        "`tool_access` is a string but not valid",
    ),
    ("agent_spawn", '{"prompt": "x", "tool_access": "[1]"}', "at `$.tool_access`"),
    (
        "agent_spawn",
        '{"prompt": "x", "tool_access": {"policy": "all"}}',
        "Invalid enum value 'all'",
    ),
    (
        "agent_spawn",
        '{"prompt": "x", "tool_access": {"tools": ["rest"]}}',
        "required field `policy`",
    ),
    (
        "agent_spawn",
        '{"prompt": "x", "tool_access": {"policy": "allow_list"}}',
        "tool_access.tools is missing",
    ),
    (
        "agent_spawn",
        '{"prompt": "x", "tool_access": {"policy": "inherit", "tools": ["rest"]}}',
        "needs the policy",
    ),
    (
        "agent_spawn",
        '{"prompt": "x", "tool_access": {"policy": "deny_list", "tools": [1]}}',
        "`$.tool_access.tools[0]`",
    ),
    ("agent_spawn", '{"prompt": "x"', "Invalid parameters: the arguments are not valid JSON"),
    ("agent_spawn", "[]", "Invalid parameters: the arguments must be a JSON object"),
    ("agent_spawn", '{"prompt": "x", "prompt": "y"}', "duplicate key: prompt"),
    ("agent_fork", "{}", "Invalid parameters: Object missing required field `prompt`"),
    ("agent_fork", '{"prompt": "x", "budget_policy": 5}', "at `$.budget_policy`"),
    (
        "agent_fork",
        '{"prompt": "x", "tool_access": {"policy": "deny_list"}}',
        "tool_access.tools is missing",
    ),
    ("agent_status", "{}", "Invalid parameters: Object missing required field `agent_id`"),
    ("agent_cancel", "{}", "Invalid parameters: Object missing required field `agent_id`"),
    ("agent_status", '{"agent_id": 7}', "Expected `str`, got `int` - at `$.agent_id`"),
    ("agent_send", f'{{"agent_id": "{NOBODY}"}}', "missing required field `message`"),
    ("agent_send", f'{{"agent_id": "{NOBODY}", "message": " "}}', "Message cannot be empty"),
    (
        "agent_wait",
        '{"agent_ids": []}',
        "Invalid parameters: give 1 to 32 agent_ids, not 0",
    ),
    (
        "agent_wait",
        f'{{"agent_ids": "{NOBODY}"}}',
        "`agent_ids` is a string but not valid JSON",
    ),
    ("agent_wait", f'{{"agent_ids": ["{NOBODY}"], "mode": "some"}}', "Invalid enum value 'some'"),
    (
        "agent_wait",
        f'{{"agent_ids": ["{NOBODY}"], "timeout_seconds": 601}}',
        "timeout_seconds must be between 0 and",
    ),
    (
        "agent_wait",
        f'{{"agent_ids": ["{NOBODY}"], "timeout_seconds": -1}}',
        "timeout_seconds must be between 0 and",
    ),
    ("agent_resume", f'{{"agent_id": "{NOBODY}"}}', "missing required field `prompt`"),
    ("agent_resume", f'{{"agent_id": "{NOBODY}", "prompt": " "}}', "Prompt cannot be empty"),
]


@pytest.mark.parametrize(("name", "args", "text"), MALFORMED)
@on_virtual_time
async def test_malformed_arguments_are_named_in_an_error(name: str, args: str, text: str) -> None:
    texts = await refusal(ToolCall(id="", name=name, arguments_json=args))
    assert text in texts and "The tool failed" not in texts


KNOWN = {
    "agent_spawn": "prompt, provider, model, tool_access, budget, system_prompt",
    "agent_fork": "prompt, provider, model, tool_access, budget_policy",
    "agent_status": "agent_id",
    "agent_cancel": "agent_id",
    "agent_list": "none",
    "agent_send": "agent_id, message, steer",
    "agent_wait": "agent_ids, mode, timeout_seconds",
    "agent_resume": "agent_id, prompt, budget",
}


@pytest.mark.parametrize("name", ALL)
@on_virtual_time
async def test_an_unknown_field_is_named_with_those_that_there_are(name: str) -> None:
    args: dict[str, Any] = {
        "agent_id": NOBODY,
        "agent_ids": [NOBODY],
        "prompt": "x",
        "message": "x",
    }
    args = {k: v for k, v in args.items() if k in KNOWN[name].split(", ")}
    text = await refusal(call(name, **args, foo=1))
    assert (
        text
        == f"Invalid parameters: Object contains unknown field `foo`. Known fields: {KNOWN[name]}"
    )


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"budget": {"tokens": 5}}, "max_tokens, max_turns, max_tool_calls"),
        ({"budget": '{"tokens": 5}'}, "max_tokens, max_turns, max_tool_calls"),
        ({"tool_access": {"policy": "inherit", "tokens": 5}}, "policy, tools"),
    ],
)
@on_virtual_time
async def test_an_unknown_field_inside_another_is_named_too(
    more: dict[str, Any], name: str
) -> None:
    text = await refusal(spawn("x", **more))
    assert "unknown field `tokens` - at" in text and text.endswith(f". Known fields: {name}")


# ids that are nobody's

IDS: list[tuple[str, dict[str, Any]]] = [
    ("agent_status", {}),
    ("agent_cancel", {}),
    ("agent_send", {"message": "x"}),
    ("agent_resume", {"prompt": "x"}),
]


@pytest.mark.parametrize(("name", "args"), IDS)
@on_virtual_time
async def test_an_id_that_is_no_uuid_is_an_error(name: str, args: dict[str, Any]) -> None:
    text = await refusal(call(name, agent_id="sub-agent-019467d97e3a", **args))
    assert text.startswith("Invalid agent_id format: ")


@pytest.mark.parametrize(("name", "args"), IDS)
@on_virtual_time
async def test_an_id_that_nobody_has_is_an_error(name: str, args: dict[str, Any]) -> None:
    assert await refusal(call(name, agent_id=NOBODY, **args)) == f"Sub-agent not found: {NOBODY}"


@on_virtual_time
async def test_waiting_for_an_id_that_nobody_has_is_an_error() -> None:
    assert await refusal(call("agent_wait", agent_ids=[NOBODY])) == f"Sub-agent not found: {NOBODY}"
    assert (await refusal(call("agent_wait", agent_ids=["x"]))).startswith(
        "Invalid agent_id format: "
    )
    text = await refusal(call("agent_wait", agent_ids=[NOBODY] * 33))
    assert text == "Invalid parameters: give 1 to 32 agent_ids, not 33"


@pytest.mark.parametrize(("name", "args"), IDS)
@on_virtual_time
async def test_the_agents_of_another_run_are_nobody_to_it(name: str, args: dict[str, Any]) -> None:
    """Neither another run nor its children can be looked at or touched."""
    owner = World(spawn("after 500 say x"), call("rest", seconds=300.0))
    async with owner.open() as retinue:
        theirs = await retinue.spawn(owner.lead, "Go.")
        await asyncio.sleep(1)
        (child,) = (await retinue.tree(theirs)).children
        for id in (child.id, theirs):
            other = World(call(name, agent_id=id, **args))
            curious = Agent(
                f"curious {id}",
                model=Scripted(other.say, name=f"model of {id}"),
                families=[family("agent")],
            )
            await retinue.run(curious, "Go.")
            assert other.results == [f"Sub-agent not found: {id}"]
        assert (await retinue.tree(theirs)).children[0].state == "thinking", (
            "nothing has happened to it"
        )
        await retinue.cancel(theirs)


@on_virtual_time
async def test_an_id_may_be_written_in_capitals() -> None:
    world = World(
        spawn("say x"), lambda q: call("agent_wait", agent_ids=[ids(q)[0].upper(), ids(q)[0]])
    )
    await world.go()
    assert [a["agent_id"] for a in world.results[1]["agents"]] == [world.results[0]["agent_id"]]


@on_virtual_time
async def test_a_failed_call_leaves_nothing_behind() -> None:
    world = World([spawn(" "), spawn("say x", provider="nobody"), fork("")], call("agent_list"))
    outcome = await world.go()
    assert world.results[3]["total_count"] == 0
    assert outcome.children == ()


@on_virtual_time
async def test_several_mistakes_in_one_reply_are_answered_one_by_one() -> None:
    world = World([spawn(" "), spawn("say fine"), call("agent_status", agent_id="x")], wait())
    await world.go()
    assert world.results[0] == "Prompt cannot be empty"
    assert world.results[1]["state"] == "running"
    assert world.results[2].startswith("Invalid agent_id format: ")
    assert world.results[3]["agents"][0]["output"] == "fine"
