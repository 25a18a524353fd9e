"""What a call is about, in words: those of the tool if it has any, otherwise its name and its first
short argument."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from retinue.core import arguments
from retinue.core.messages import ToolCall
from retinue.formats.safe_text import one_line

_BUILTIN = {
    "read": "read_tool:ReadTool",
    "list": "list_find_tools:ListFilesTool",
    "find": "list_find_tools:FindTool",
    "search": "search:SearchTool",
    "symbols": "symbols:SymbolsTool",
    "edit": "edit:EditTool",
    "write": "write_tool:WriteTool",
    "shell": "shell:ShellTool",
    "shell_output": "shell:ShellOutputTool",
    "shell_stop": "shell:ShellStopTool",
    "git": "git:GitTool",
    "fetch": "fetch:FetchTool",
    "think": "think:ThinkTool",
    "tasks": "task_list_tool:TasksTool",
    "ask": "ask:AskTool",
}
_STARTS = {
    "spawn_agents": "tasks",
    "delegate_tasks": "tasks",
    "agent_spawn": "task",
    "agent_fork": "task",
    "sessions_spawn": "task",
    "subagent": "task",
}
MOST = 160
_known: dict[str, Callable[[dict[str, Any]], str] | None] = {}


def describe(call: ToolCall) -> str:
    """One line about a call, whatever its arguments are."""
    args = arguments.read(call.arguments_json)
    if args is None:
        return one_line(call.name, MOST)
    try:
        text = _say(call.name, args)
    except Exception:  # a summary of arguments that the tool itself will refuse
        text = ""
    return one_line(text.removeprefix("$ ") or _plain(call.name, args), MOST)


def _say(name: str, args: dict[str, Any]) -> str:
    if name in _STARTS:
        tasks = args.get(_STARTS[name])
        if isinstance(tasks, list):
            return f"starts {len(tasks)} agent{'' if len(tasks) == 1 else 's'}"
        return f"starts an agent: {tasks}"
    if name not in _known:
        _known[name] = _summary(name)
    summary = _known[name]
    return "" if summary is None else summary(args)


def _summary(name: str) -> Callable[[dict[str, Any]], str] | None:
    """The tool's own words. They are a function of the arguments alone: the tool is not put
    together for them."""
    if name not in _BUILTIN:
        return None
    module, _, kind = _BUILTIN[name].partition(":")
    try:
        tool_type = getattr(importlib.import_module(f"retinue.tools.builtin.{module}"), kind)
    except (ImportError, AttributeError):
        return None
    bare = object.__new__(tool_type)
    summary: Callable[[dict[str, Any]], str] = bare.summary
    return summary


def _plain(name: str, args: dict[str, Any]) -> str:
    for value in args.values():
        if isinstance(value, str) and value.strip():
            return f"{name} {value[:MOST]}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            return f"{name} {value}"
    return name
