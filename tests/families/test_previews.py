"""About whom a call would start, for whoever is asked to permit it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue import Agent, ToolCall
from retinue import tool as function_tool
from retinue.tools.families.base import FamilyTool
from retinue.tools.toolbox import Toolbox

STARTERS: list[tuple[str, str, dict[str, Any], list[tuple[str, str, str]]]] = [
    ("fanout", "spawn_agents", {"tasks": [{"task": "a"}, {"task": "b", "model": "m"}]},
     [("lead.fanout", "a", "none"), ("lead.fanout", "b", "none")]),
    ("delegate", "delegate_tasks",
     {"mode": "parallel", "tasks": [{"task_id": "1", "prompt": "a", "tools": []}]},
     [("lead.delegate", "a", "none")]),
    ("subagent", "subagent", {"label": "x", "task_prompt": "a"}, [("lead.subagent", "a", "none")]),
    ("subagent", "parallel_subagent", {"tasks": [{"label": "x", "task_prompt": "a"}] * 3},
     [("lead.subagent", "a", "none")] * 3),
    ("agent", "agent_spawn", {"prompt": "a"}, [("lead.agent", "a", "none")]),
    ("agent", "agent_fork", {"prompt": "a"}, [("lead", "a", "fork")]),
    ("agent", "agent_status", {"agent_id": "a"}, []),
    ("sessions", "sessions_spawn", {"task": "a"}, [("lead.sessions", "a", "none")]),
    ("sessions", "sessions_spawn", {"task": "a", "context": "fork"}, [("lead", "a", "fork")]),
    ("sessions", "sessions_list", {}, []),
    ("fanout", "spawn_agents", {"tasks": "not a list"}, []),
    ("fanout", "spawn_agents", {"tasks": [7]}, [("lead.fanout", "", "none")]),
]  # fmt: skip


@pytest.mark.parametrize(("family", "name", "args", "expected"), STARTERS)
def test_a_call_says_about_whom_it_would_start(
    family: str, name: str, args: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    toolbox = Toolbox()
    tools = Agent("lead", families=[family]).own_tools
    assert any(tool.schema.name == name for tool in tools), [tool.schema.name for tool in tools]
    toolbox.add("lead", tools)
    orders = toolbox.preview("lead", ToolCall(id="c", name=name, arguments_json=json.dumps(args)))
    assert [(order.agent, order.task, order.history.kind) for order in orders] == expected


def test_every_tool_that_starts_somebody_has_a_preview() -> None:
    starting = {name for _, name, _, expected in STARTERS if expected}
    for family in ("agent", "delegate", "fanout", "sessions", "subagent"):
        for tool in Agent("lead", families=[family]).own_tools:
            assert isinstance(tool, FamilyTool)
            assert bool(tool.starts) == (tool.schema.name in starting), tool.schema.name


def test_a_tool_of_the_program_itself_tells_nothing() -> None:
    def hire(task: str) -> str:
        """Hire somebody."""
        return task

    toolbox = Toolbox()
    toolbox.add("lead", Agent("lead", tools=[function_tool(hire)]).own_tools)
    assert (
        toolbox.preview("lead", ToolCall(id="c", name="hire", arguments_json='{"task": "a"}')) == ()
    )
    assert toolbox.preview("lead", ToolCall(id="c", name="gone", arguments_json="not JSON")) == ()
