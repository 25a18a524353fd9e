"""The arguments of the tools that start sub-agents, as types and schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from retinue.core.values import Value
from retinue.tools.families.base import object_schema

if TYPE_CHECKING:
    pass

ONE, MANY = "subagent", "parallel_subagent"

MAX_TURNS = 50
MAX_CONCURRENT = 5


class SubagentTask(Value, forbid_unknown_fields=True):
    label: str
    task_prompt: str
    summary_prompt: str = ""
    allowed_tools: tuple[str, ...] | None = None
    max_turns: int | None = None


class ParallelArgs(Value, forbid_unknown_fields=True):
    tasks: tuple[SubagentTask, ...]
    max_concurrent: int = MAX_CONCURRENT
    fail_fast: bool = False


def task_schema(default_turns: int) -> dict[str, Any]:
    properties = {
        "label": {
            "type": "string",
            "description": "A short name for the task, shown to users and in the result.",
        },
        "task_prompt": {
            "type": "string",
            "description": "The complete task. The sub-agent does not see your conversation.",
        },
        "summary_prompt": {
            "type": "string",
            "description": "How the sub-agent is asked to summarize when it has finished.",
        },
        "allowed_tools": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "description": (
                "The only tools it may use, of those you have. Default or null: all of them."
            ),
        },
        "max_turns": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_TURNS,
            "description": f"Maximum turns ({default_turns}). At the limit, its work so "
            "far is returned as incomplete.",
        },
    }
    return object_schema(properties, ("label", "task_prompt"))
