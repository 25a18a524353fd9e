"""Limits the number of tools a model gets. OpenAI refuses a request with more than 128, and MCP
servers offer hundreds: the same ones are omitted each time, and both the user and the model get a
note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from retinue.core.values import ToolSchema

OPENAI = 128
MCP = "mcp__"


def fitting(tools: tuple[ToolSchema, ...], most: int) -> tuple[ToolSchema, ...]:
    """So many of the tools at most (0: all), in their order: first those that do not come from a
    server, or have a name of their own, then the first of each server, the second of each, and so
    on."""
    if not most or len(tools) <= most:
        return tools
    counts: Counter[str] = Counter()
    ranks = []
    for n, tool in enumerate(tools):
        server = _server(tool)
        ranks.append((counts[server] if server else -1, n))
        counts[server] += 1
    chosen_numbers = {n for _, n in sorted(ranks)[:most]}
    return tuple(tool for n, tool in enumerate(tools) if n in chosen_numbers)


def left_out(tools: Sequence[ToolSchema], offered_tools: Sequence[ToolSchema], most: int) -> str:
    """What was omitted, and how to choose; "" when nothing was."""
    names = {tool.name for tool in offered_tools}
    counts = Counter(_server(tool) or "others" for tool in tools if tool.name not in names)
    if not counts:
        return ""
    whose = ", ".join(f"{n} of {server}" for server, n in sorted(counts.items()))
    return (
        f"{counts.total()} tools are not offered, because this model accepts at most {most} "
        f"({whose}). To choose which, use includeTools or excludeTools of an MCP server, "
        "or the agent's list of tools."
    )


def _server(tool: ToolSchema) -> str:
    return tool.name.removeprefix(MCP).partition("__")[0] if tool.name.startswith(MCP) else ""
