"""Several families on one agent: they share the machine, see the same runs in the same states, and
stay out of each other's way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue import Agent, ConfigError, Origin, Retinue, family, tool
from retinue.core.messages import AssistantMessage, ToolMessage
from retinue.core.values import Ending
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, Scripted, call, run_virtual
from retinue.tools.families import family_states
from retinue.tools.families.profiles import FAMILIES, PROFILES

SPAWNERS = {
    "agent": "agent_spawn",
    "delegate": "delegate_tasks",
    "fanout": "spawn_agents",
    "sessions": "sessions_spawn",
    "subagent": "subagent",
}
ENDS = ("completed", "incomplete", "failed", "timed_out", "cancelled", "interrupted")


@tool(risk="read")
def lookup(q: str) -> str:
    """Look something up."""
    return q


def turn_of(request: ModelRequest) -> int:
    return sum(isinstance(m, AssistantMessage) for m in request.messages)


def results(messages: Any) -> list[Any]:
    return [m for m in messages if isinstance(m, ToolMessage)]


def test_one_agent_can_use_all_five_families_in_one_turn() -> None:
    offered: dict[str, set[str]] = {}

    def script(request: ModelRequest) -> Any:
        if request.path != "0":
            offered[request.agent] = {t.name for t in request.tools}
            return f"result of {request.agent}"
        if turn_of(request) == 0:
            return [
                call("agent_spawn", prompt="a"),
                call(
                    "delegate_tasks",
                    mode="parallel",
                    tasks=[{"task_id": "t", "prompt": "b", "tools": ["lookup"]}],
                ),
                call("spawn_agents", tasks=[{"task": "c"}]),
                call("sessions_spawn", task="d", cleanup="keep"),
                call("subagent", label="e", task_prompt="e"),
            ]
        return "all done" if turn_of(request) > 1 else call("agent_list")

    async def work() -> tuple[Any, list[Any]]:
        async with Retinue(MemoryStore()) as retinue:
            lead = Agent("lead", model=Scripted(script), tools=[lookup], families=list(FAMILIES))
            outcome = await retinue.run(lead, "go")
            return outcome, results(await retinue.messages(outcome.id))

    outcome, calls = run_virtual(work())
    assert outcome.state == "completed"
    assert {c.label for c in outcome.children} >= {"t", "e"}
    assert len(outcome.children) == 5
    by_tool = {m.name: m.text for m in calls}
    assert "### t (completed)\nresult of lead.delegate" in by_tool["delegate_tasks"]
    assert json.loads(by_tool["spawn_agents"])["sub_agent_results"][0]["outcome"] == {
        "success": {"result": "result of lead.fanout"}
    }
    assert json.loads(by_tool["subagent"])["output"] == "result of lead.subagent"
    listed = json.loads(by_tool["agent_list"])
    assert listed["total_count"] == 5
    for agent, tools in offered.items():
        allowed = {"subagent"} if agent == "lead.subagent" else set()
        assert tools & set(SPAWNERS.values()) <= allowed, (agent, tools)


@pytest.mark.parametrize("end", ENDS)
def test_a_run_has_one_state_in_all_vocabularies(end: Any) -> None:
    """Success in one family is success in all; a failure is nowhere a success."""
    ending = Ending(state=end, stop="x", text="partial" if end == "incomplete" else "")
    good = end == "completed"
    assert (family_states.AGENT[end] == "completed") == (end in ("completed", "incomplete"))
    assert (family_states.DELEGATE[end] == "completed") == good
    assert (family_states.SESSIONS[end] == "ok") == good
    assert (family_states.SUBAGENT[end] == "complete") == good
    if not good and end != "incomplete":
        assert family_states.error_kind(ending) in family_states.KINDS
    assert (
        (family_states.SESSIONS[end] == "timeout")
        == (family_states.DELEGATE[end] == "timed_out")
        == (end == "timed_out")
    )
    assert (family_states.AGENT[end] == "cancelled") == (end == "cancelled")


def test_one_run_is_seen_alike_through_the_families_that_look() -> None:
    """A child of one family, looked at by the tools of two others, while it runs and after it has
    failed."""

    def script(request: ModelRequest) -> Any:
        if request.path != "0":
            return RuntimeError("broken") if turn_of(request) else call("lookup", q="x")
        n = turn_of(request)
        if n == 0:
            return call("sessions_spawn", task="d", label="mine")
        if n in (1, 3):
            return [call("agent_list"), call("sessions_list")]
        if n == 2:
            ids = [
                json.loads(m.text)["runId"]
                for m in request.messages
                if getattr(m, "name", "") == "sessions_spawn"
            ]
            return call("agent_wait", agent_ids=ids)
        return "end"

    async def work() -> list[Any]:
        async with Retinue(MemoryStore()) as retinue:
            lead = Agent(
                "lead",
                model=Scripted(script, delay=1.0),
                tools=[lookup],
                families=["agent", "openclaw"],
            )
            outcome = await retinue.run(lead, "go", origin=Origin(channel=""))
            return results(await retinue.messages(outcome.id))

    calls = run_virtual(work())
    lists = [json.loads(m.text) for m in calls if m.name == "agent_list"]
    sessions = [json.loads(m.text) for m in calls if m.name == "sessions_list"]
    assert [one["agents"][0]["state"] for one in lists] == ["running", "failed"]
    assert [one["sessions"][0]["status"] for one in sessions] == ["running", "error"]
    assert lists[1]["agents"][0]["name"] == sessions[1]["sessions"][0]["label"] == "mine"


def test_a_family_is_off_unless_the_agent_has_it_and_a_request_can_switch_it() -> None:
    records: list[set[str]] = []
    prompts: list[str] = []

    def script(request: ModelRequest) -> Any:
        records.append({t.name for t in request.tools})
        prompts.append(request.instructions)
        return "ok"

    async def work() -> None:
        async with Retinue(MemoryStore()) as retinue:
            plain = Agent("plain", model=Scripted(script), tools=[lookup])
            on = Agent(
                "on",
                "Be brief.",
                model=Scripted(script),
                tools=[lookup],
                families=["agent", "fanout"],
            )
            off = Agent(
                "off",
                model=Scripted(script),
                tools=[lookup],
                families=[family("agent", enabled=False)],
            )
            for agent, options in (
                (plain, {}),
                (on, {}),
                (on, {"families": {"agent": False}}),
                (off, {}),
                (off, {"families": {"agent": True}}),
            ):
                await retinue.run(agent, "go", **options)
            with pytest.raises(ConfigError, match="has no family 'nonsense'"):
                await retinue.run(on, "go", families={"nonsense": True})

    run_virtual(work())
    has = [("agent_spawn" in s, "spawn_agents" in s) for s in records]
    assert has == [(False, False), (True, True), (False, True), (False, False), (True, False)]
    guides = ["agent_spawn" in p for p in prompts]
    assert guides == [False, True, False, False, True]
    assert all(p.startswith("Be brief.") for p in prompts[1:3])


@pytest.mark.parametrize("name", [*FAMILIES, *PROFILES])
def test_every_family_has_a_guide_and_can_go_without(name: str) -> None:
    result = family(name)
    assert 200 < len(result.guide) < 1_500
    assert any(t in result.guide for t in result.tool_names)
    lead = Agent("lead", "Short.", families=[result])
    assert lead.full_instructions({}) == f"Short.\n\n{result.guide}"
    assert (
        Agent("lead", "Short.", families=[family(name, guide=False)]).full_instructions({})
        == "Short."
    )


def test_two_families_of_one_kind_cannot_be_on_one_agent() -> None:
    async def work() -> None:
        async with Retinue(MemoryStore()) as retinue:
            lead = Agent("lead", model=Scripted(["x"]), families=["clawdbot", "openclaw"])
            await retinue.run(lead, "go")

    with pytest.raises(ConfigError, match="the same family"):
        run_virtual(work())


@pytest.mark.parametrize("name", FAMILIES)
def test_every_tool_of_a_family_has_a_schema_and_words_that_help_a_model(name: str) -> None:
    for result in family(name).tools():
        schema = result.schema
        assert len(schema.description) > 40, schema.name
        assert schema.parameters["type"] == "object"
        assert schema.parameters["additionalProperties"] is False
        assert set(schema.parameters["required"]) <= set(schema.parameters["properties"])
