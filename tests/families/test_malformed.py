"""Whatever a model writes as arguments, every tool of every family answers with something the model
can act on."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from retinue import Agent, Limits, Retinue, family, tool
from retinue.core.messages import AssistantMessage, ToolCall, ToolMessage
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, Scripted, run_virtual

CASES, PER_TURN = 5_000, 50
FAMILIES = ["agent", "delegate", "fanout", "sessions", "subagent"]
OTHERS = [
    "agent",
    "delegate",
    family("phoenix", strict=True),
    family("openclaw", max_spawn_depth=2),
    "xzatoma",
]
"""The same with the settings of the profiles that differ most from their families."""


@tool(risk="read")
def lookup(q: str) -> str:
    """Look something up."""
    return q


def sound(schema: dict[str, Any], r: random.Random, depth: int = 0) -> Any:
    """A value that the schema would take, more or less."""
    if "enum" in schema:
        return r.choice(schema["enum"])
    if "anyOf" in schema:
        return sound(r.choice(schema["anyOf"]), r, depth)
    match schema.get("type"):
        case "string" | ["string", "null"]:
            return r.choice(
                ["x", "", " ", "a task", "00000000-0000-7000-8000-000000000000", "ünï😀"]
            )
        case "integer" | "number":
            return r.choice([0, 1, 5, -1, 51, 10**9, 0.5])
        case "boolean":
            return r.random() < 0.5
        case "array" | ["array", "null"]:
            return [
                sound(schema.get("items", {}), r, depth + 1)
                for _ in range(r.choice([0, 1, 2, 3, 12]))
            ]
        case "object":
            properties = schema.get("properties", {})
            required = schema.get("required", [])
            return {
                k: sound(v, r, depth + 1)
                for k, v in properties.items()
                if k in required or r.random() < 0.4
            }
        case _:
            return "x"


WRONG: list[Any] = [
    None, True, -1, 3.5, "", "text", "\x00", "é" * 2_000, [], [[]], {}, {"a": {"b": [1]}},
    [None, 1, "x"], 10**400, "{}", '{"policy": "inherit"}', "[1, 2", "null", {"policy": "all"},
    ["lookup", 5], "fixed:-1", "subagent:nobody",
]  # fmt: skip


def twisted(schema: dict[str, Any], r: random.Random) -> str:
    """The text of a call's arguments with something wrong in it, more often than not."""
    value = sound(schema, r)
    for _ in range(r.choice([0, 1, 1, 2])):
        keys = [*schema.get("properties", {}), "unknown", "prompt", "tasks", "agent_id"]
        value[r.choice(keys)] = r.choice(WRONG)
    if value and r.random() < 0.2:
        del value[r.choice(list(value))]
    text = json.dumps(value)
    x = r.random()
    if x < 0.03:
        return text[: r.randrange(len(text))]
    if x < 0.05:
        return (
            text[:-1] + ', "prompt": "a", "prompt": "b"}' if len(text) > 2 else '{"a": 1, "a": 2}'
        )
    if x < 0.07:
        return '{"prompt": NaN, "tasks": Infinity}'
    if x < 0.08:
        return '{"prompt": ' + "[" * 1_000 + "]" * 1_000 + "}"
    if x < 0.085:
        return json.dumps({"prompt": "x" * (1 << 20), "task": "x" * (1 << 20)})
    if x < 0.11:
        return '{"prompt": "\\ud800", "task": "\\udfff", "label": "\\ud800\\ud800"}'
    if x < 0.14:
        return json.dumps(text)
    if x < 0.16:
        return r.choice(["", "null", "[]", "5", '"text"', "{", "\ud800", "{'a': 1}"])
    return text


@pytest.mark.parametrize("families", [FAMILIES, OTHERS], ids=["families", "profiles"])
def test_five_thousand_malformed_calls_are_answered_in_words(families: list[Any]) -> None:
    r = random.Random(20261115)
    call_list: list[ToolCall] = []
    nests = {"sessions_spawn"} if families is OTHERS else set()
    spawners = {"agent_spawn", "agent_fork", "delegate_tasks", "spawn_agents", "sessions_spawn"}

    def script(request: ModelRequest) -> Any:
        if request.path != "0":
            names = {t.name for t in request.tools} & spawners
            assert names <= nests, "a child was offered a tool to start others"
            return "done"
        if len(call_list) >= CASES:
            return "enough"
        turn = sum(isinstance(m, AssistantMessage) for m in request.messages)
        calls = []
        for n in range(PER_TURN):
            choice = r.choice(
                [t for t in request.tools if t.name not in ("lookup", "artifact", "sessions_yield")]
            )
            calls.append(
                ToolCall(
                    id=f"t{turn}n{n}",
                    name=choice.name,
                    arguments_json=twisted(choice.parameters, r),
                )
            )
        call_list.extend(calls)
        return AssistantMessage(calls=tuple(calls))

    async def work() -> list[ToolMessage]:
        rules = Limits(max_turns=10_000, compact_at=1e9, breaker_after=10**9)
        async with Retinue(MemoryStore(), limits=rules) as retinue:
            lead = Agent("lead", "lead", model=Scripted(script), tools=[lookup], families=families)
            outcome = await retinue.run(lead, "go")
            assert (outcome.state, outcome.text) == ("completed", "enough")
            assert not retinue.blocked_reason
            return [m for m in await retinue.messages(outcome.id) if isinstance(m, ToolMessage)]

    results = run_virtual(work())
    assert len(results) == len(call_list) >= CASES
    assert len({c.name for c in call_list}) >= 17
    refused = [m for m in results if m.error]
    assert len(refused) > CASES // 2
    for result in results:
        assert result.text.strip(), result
        assert "Traceback" not in result.text, result
        assert "The tool failed" not in result.text, result
        assert len(result.text) < 200_000
    for result in refused:
        assert len(result.text) < 5_000, result.text[:500]
