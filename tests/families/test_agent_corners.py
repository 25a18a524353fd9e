"""The corners of the family `agent`: exactly five tools for the profile, defaults beside other
providers, names of siblings, and what counts as an operation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue.config import read_config
from retinue.testing import call
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.agent_world import (
    ALL,
    FIVE,
    LIMIT,
    World,
    about,
    fork,
    news,
    pause,
    refusal,
    results,
    spawn,
    wait,
)
from tests.families.test_agent_models import ANTHROPIC, EVERY, GEMINI, LISTS, OPENAI, chosen

LONG = "after 500 say x"
MORE = ("agent_send", "agent_wait", "agent_resume")
WIDE: dict[str, Any] = {"max_concurrent_agents": 100, "max_children_per_agent": 100}


# exactly five


@on_virtual_time
async def test_the_profile_meerkat_offers_exactly_the_five_tools() -> None:
    world = World([call(name) for name in MORE], **EVERY)
    await world.go()
    assert tuple(name for name in world.offered if name.startswith("agent_")) == FIVE
    assert all(text.startswith("Unknown tool") for text in world.results)
    guide = world.of_lead[0].instructions
    assert "agent_spawn" in guide and not any(name in guide for name in MORE)


@on_virtual_time
async def test_the_three_more_are_a_setting_of_the_profile_and_of_the_family() -> None:
    world = World("done", **{**EVERY, "more_tools": True})
    await world.go()
    assert tuple(name for name in world.offered if name.startswith("agent_")) == ALL
    assert "agent_wait" in world.of_lead[0].instructions
    few = World("done", more_tools=False)
    await few.go()
    assert tuple(name for name in few.offered if name.startswith("agent_")) == FIVE
    assert "agent_wait" not in few.of_lead[0].instructions


@on_virtual_time
async def test_with_comms_parent_and_child_have_the_tool_to_write_and_no_other() -> None:
    world = World(spawn("say x"), **{**EVERY, "enable_comms": True})
    await world.go()
    assert tuple(name for name in world.offered if name.startswith("agent_")) == (
        *FIVE,
        "agent_send",
    )
    assert [t.name for t in world.of("say x")[0].tools if t.name.startswith("agent_")] == [
        "agent_send"
    ]


@on_virtual_time
async def test_a_lead_without_a_tool_to_wait_ends_its_turn_and_is_told() -> None:
    world = World(spawn("after 50 say found"), "I wait.", "read", **EVERY)
    outcome = await world.go()
    assert outcome.text == "read" and "found" in news(world.of_lead[-1].messages)[0]


@on_virtual_time
async def test_an_inherited_prompt_says_nothing_of_tools_that_a_child_does_not_have() -> None:
    world = World(spawn("say x"), **{**EVERY, "enabled": False})
    await world.go(families={"agent": True})
    assert world.of("say x")[0].instructions == "Lead well."


# another provider than the default's


@pytest.mark.parametrize("start", [spawn, fork])
@pytest.mark.parametrize("inherits", [False, True])
@on_virtual_time
async def test_a_configured_default_does_not_break_spawns_on_another_provider(
    start: Any, inherits: bool
) -> None:
    world: dict[str, Any] = {**EVERY, "default_model": "claude-sonnet-5-5"}
    if inherits:
        world["default_provider"] = "inherit"
    assert await chosen(start("say x"), **world) == (
        "anthropic",
        "claude-sonnet-5-5",
        "claude-sonnet-5-5",
    )
    assert await chosen(start("say x", provider="openai"), **world) == (
        "openai",
        OPENAI[0],
        OPENAI[0],
    )
    assert await chosen(start("say x", provider="gemini"), **world) == (
        "gemini",
        GEMINI[0],
        GEMINI[0],
    )


@on_virtual_time
async def test_a_configured_default_of_another_provider_than_the_parents_is_used() -> None:
    world = {**EVERY, "default_provider": "inherit", "default_model": "gpt-6.1-terra"}
    assert await chosen(spawn("say x"), **world) == ("openai", "gpt-6.1-terra", "gpt-6.1-terra")
    assert (await chosen(spawn("say x", provider="anthropic"), **world))[1] == ANTHROPIC[0]


@on_virtual_time
async def test_an_inherited_model_does_not_break_spawns_on_another_provider() -> None:
    world = {"allowed_models": LISTS, "model": "gpt-6.1-sol", "models": ("claude-opus-5-5",)}
    assert (await chosen(spawn("say x", provider="anthropic"), **world))[1] == "claude-opus-5-5"
    text = await refusal(spawn("say x", provider="openai"), allowed_models=LISTS, model="gpt-4")
    assert text.startswith("Model 'gpt-4' is not in allowlist for provider 'openai'"), (
        "that is inherited, and refused"
    )


@on_virtual_time
async def test_without_lists_a_configured_default_does_not_break_spawns_on_another_provider() -> (
    None
):
    world = {"model": "claude-x", "models": ["gpt-y", "claude-z"], "default_model": "claude-z"}
    assert await chosen(spawn("say x"), **world) == ("anthropic", "claude-z", "claude-z")
    assert await chosen(spawn("say x", provider="openai"), **world) == ("openai", "gpt-y", "gpt-y")


# what an answer says


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("model of lead", "unknown"), ("gpt-6.1-sol", "openai"), ("mistral:large", "mistral"),
        ("ollama:qwen3:8b", "ollama"), ("offline/explorer", "offline"), ("CLAUDE:x", "anthropic"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("start", [spawn, fork])
@on_virtual_time
async def test_the_provider_of_an_answer_is_never_inherit(
    start: Any, model: str, provider: str
) -> None:
    world = World(start("say x"), model=model)
    await world.go()
    (reply,) = world.results
    assert reply["provider"] == provider
    for name in ("agent_spawn", "agent_fork"):
        assert "inherit" not in world.properties(name)["provider"]["description"]


# names


def names(world: World) -> list[str]:
    return [r["name"] for r in world.results if isinstance(r, dict) and "name" in r]


@on_virtual_time
async def test_siblings_of_one_millisecond_have_different_names() -> None:
    lines = [
        [spawn("say a"), call("look_up", word="x"), spawn("say b"), fork("say c"), spawn("say d")]
    ]
    world = World(*lines)
    outcome = await world.go()
    assert len(set(names(world))) == 4
    for reply in (r for r in world.results if isinstance(r, dict)):
        kind, _, digits = reply["name"].rpartition("-")
        assert digits == reply["agent_id"].replace("-", "")[:12] and kind in ("sub-agent", "fork")
    assert [c.label for c in outcome.children] == names(world)
    assert [c.id for c in outcome.children] == sorted(c.id for c in outcome.children)


@on_virtual_time
async def test_children_of_several_turns_of_one_millisecond_have_different_names_too() -> None:
    """The clock stands still: nobody takes any time."""
    turns = [[spawn(f"say {t} {n}") for n in range(3)] for t in range(5)]
    world = World(*turns, concurrency_limits=WIDE)
    await world.go()
    assert len(set(names(world))) == 15
    assert all(r["name"].endswith(r["agent_id"].replace("-", "")[:12]) for r in world.results)


# operations


@on_virtual_time
async def test_children_of_another_family_are_operations_too() -> None:
    tasks = [{"task_id": x, "prompt": LONG, "tools": []} for x in "ab"]
    families = [family("agent", concurrency_limits={**WIDE, "max_concurrent_ops": 3}), "delegate"]
    first = call("delegate_tasks", mode="background", tasks=tasks)
    world = World(first, spawn(LONG), spawn(LONG), fields={"families": families})
    await world.go()
    assert world.results[-1] == LIMIT and world.results[-2]["state"] == "running"


@on_virtual_time
async def test_whoever_is_at_work_further_down_is_an_operation_whichever_family_started_it() -> (
    None
):
    deep = [{"task_id": x, "prompt": LONG, "tools": []} for x in "ab"]
    top = [{"task_id": "top", "prompt": "hand on", "tools": ["delegate_tasks"]}]
    does = {"hand on": [call("delegate_tasks", mode="parallel", tasks=deep), "done"]}
    first = call("delegate_tasks", mode="background", tasks=top)
    for most, text in ((3, LIMIT), (4, "running")):
        families = [
            family("agent", concurrency_limits={**WIDE, "max_concurrent_ops": most}),
            family("delegate", allow_nesting=True),
        ]
        world = World(first, pause(10, spawn(LONG)), does=does, fields={"families": families})
        await world.go()
        reply = world.results[-1]
        assert text == (reply if isinstance(reply, str) else reply["state"])


@pytest.mark.parametrize("start", [spawn, fork])
@on_virtual_time
async def test_a_tool_that_runs_is_an_operation_also_in_the_same_turn(start: Any) -> None:
    limits = {**WIDE, "max_concurrent_ops": 2}
    world = World([call("rest", seconds=50.0), start(LONG), start(LONG)], concurrency_limits=limits)
    await world.go()
    states = [r if isinstance(r, str) else r["state"] for r in world.results]
    assert states[:2] == ["rested", "running"] and states[2].endswith(
        "concurrency or depth limit reached"
    )


@on_virtual_time
async def test_a_tool_that_a_child_runs_is_an_operation_and_free_again_when_it_has_ended() -> None:
    limits = {**WIDE, "max_concurrent_ops": 2}
    does = {"rest": [call("rest", seconds=50.0), pause(500, "done")]}
    lines = [spawn("rest"), pause(10, spawn("say y")), pause(60, spawn("say z"))]
    world = World(*lines, does=does, concurrency_limits=limits)
    await world.go()
    assert [r if isinstance(r, str) else r["state"] for r in world.results] == [
        "running",
        LIMIT,
        "running",
    ]


@on_virtual_time
async def test_operations_are_counted_in_one_tree_and_not_in_others() -> None:
    limits = {**WIDE, "max_concurrent_ops": 1}
    world = World(spawn(LONG), concurrency_limits=limits)
    async with world.open() as retinue:
        runs = [await retinue.spawn(world.lead, "Go.") for _ in range(3)]
        await asyncio.sleep(10)
        assert [len((await retinue.tree(run)).children) for run in runs] == [1, 1, 1]


@on_virtual_time
async def test_a_call_that_waits_for_children_is_no_operation_of_its_own() -> None:
    limits = {**WIDE, "max_concurrent_ops": 2}
    families = [family("agent", concurrency_limits=limits), "delegate"]
    tasks = [{"task_id": "a", "prompt": "after 50 say x", "tools": []}]
    parallel = call("delegate_tasks", mode="parallel", tasks=tasks)
    world = World([parallel, spawn(LONG)], fields={"families": families})
    await world.go()
    assert [r["state"] for r in world.results if isinstance(r, dict)] == ["running"]


# nesting


@on_virtual_time
async def test_where_nesting_is_wired_the_permission_is_enough_by_itself() -> None:
    does = {"nest": [spawn("say deep"), "nested"]}
    for allowed in (True, False):
        world = World(
            spawn("nest"), wait(), does=does, grant_spawn_tools=True, allow_nested_spawn=allowed
        )
        await world.go()
        assert bool(world.of("say deep")) is allowed
    profile = {**EVERY, "grant_spawn_tools": True}
    world = World(spawn("nest"), does=does, **profile)
    await world.go()
    assert world.of("say deep"), "the profile permits it: only the tools were missing"


def test_the_settings_say_what_nesting_needs_beside_the_permission() -> None:
    doc = family("agent").settings.__doc__ or ""
    assert "grant_spawn_tools" in doc and "allow_nested_spawn" in doc
    page = (Path(__file__).parents[2] / "docs/guides/families.md").read_text(encoding="utf-8")
    (line,) = [
        line for line in page.splitlines() if line.startswith("| `allow_nested_spawn` (true)")
    ]
    assert "`grant_spawn_tools`" in line


# the document's own configuration

DOCUMENTED = """
[sub_agents]
default_provider = "anthropic"
allow_nested_spawn = true
default_budget = 50000
inherit_system_prompt = true
enable_comms = false

[sub_agents.concurrency_limits]
max_depth = 3
max_concurrent_ops = 32
max_concurrent_agents = 8
max_children_per_agent = 5
"""


@on_virtual_time
async def test_the_configuration_of_the_document_loads_as_it_stands_and_is_enforced(
    tmp_path: Path,
) -> None:
    """All fields of the tables SubAgentConfig and ConcurrencyLimits with the values that stand
    there."""
    file = tmp_path / "retinue.toml"
    file.write_text('profiles = ["meerkat"]\n' + DOCUMENTED)
    (result,) = read_config(file).families
    assert result.settings == family("meerkat").settings, "they are the defaults"
    world = World([spawn(LONG)] * 6, **EVERY, fields={"families": [result]})
    outcome = await world.go()
    assert [r if isinstance(r, str) else r["state"] for r in world.results] == ["running"] * 5 + [
        LIMIT
    ]
    specs = [(await world.row(c.id))[0] for c in outcome.children]
    assert {spec.request.budget.tokens for spec in specs} == {50_000}
    assert {spec.model for spec in specs} == {"claude-opus-5-5"}
    assert world.of(LONG)[0].instructions == "Lead well."


@on_virtual_time
async def test_each_value_of_the_documents_configuration_counts_when_it_is_another(
    tmp_path: Path,
) -> None:
    file = tmp_path / "retinue.toml"
    other = DOCUMENTED.replace("max_children_per_agent = 5", "max_children_per_agent = 2")
    other = other.replace(
        "default_budget = 50000", "default_budget = 70000\nmax_budget_per_agent = 60000"
    )
    other = other.replace("inherit_system_prompt = true", "inherit_system_prompt = false")
    other = other.replace('"anthropic"', '"openai"\ndefault_model = "gpt-6.1-terra"')
    file.write_text('profiles = ["meerkat"]\n' + other)
    lines = [[spawn(LONG), spawn(LONG, budget={"max_tokens": 90000}), spawn(LONG)]]
    world = World(*lines, **EVERY, fields={"families": read_config(file).families})
    outcome = await world.go()
    assert [r if isinstance(r, str) else r["model"] for r in world.results] == [
        "gpt-6.1-terra"
    ] * 2 + [LIMIT]
    specs = [(await world.row(c.id))[0] for c in outcome.children]
    assert [spec.request.budget.tokens for spec in specs] == [70_000, 60_000]
    assert world.of(LONG)[0].instructions == ""
    assert results(world.of_lead[-1].messages)[2] == LIMIT


def test_a_section_alone_turns_the_family_on(tmp_path: Path) -> None:
    file = tmp_path / "retinue.toml"
    file.write_text(DOCUMENTED)
    (result,) = read_config(file).families
    assert result.name == "agent"


# keys of a status


@on_virtual_time
async def test_a_status_of_the_profile_has_the_keys_of_the_document_and_no_others() -> None:
    lines = [spawn("say a", budget={"max_tokens": 10}), spawn(LONG), call("rest", seconds=3)]
    looks = [about("agent_status", 0), about("agent_cancel", 1), about("agent_status", 1)]
    keys = []
    for more in (False, True):
        world = World(*lines, *looks, **{**EVERY, "more_keys": more})
        await world.go()
        ended, _, cancelled = world.results[3:]
        keys.append((list(ended), list(cancelled)))
    few = ["agent_id", "state", "is_final", "duration_ms", "tokens_used"]
    assert keys[0] == ([*few[:2], "output", *few[2:]], few)
    assert keys[1] == ([*few[:2], "output", "note", *few[2:]], [*few, "tokens_estimated"])
    assert not family("meerkat").settings.more_keys
