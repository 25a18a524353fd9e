"""GitHub Copilot's agents, and those of VS Code: tool sets by group, `server/tool`, and who may
invoke them."""

from __future__ import annotations

from typing import Any, Literal

from retinue.agent_files.agent_spec import AgentSpec
from retinue.agent_files.dialects.spec_reader import SpecReader, server_values, tool_values
from retinue.agent_files.tool_alias_table import AGENT

KEYS = (
    *(
        "name",
        "description",
        "target",
        "tools",
        "model",
        "disable-model-invocation",
        "user-invocable",
        "mcp-servers",
    ),
    *("metadata", "handoffs", "argument-hint", "infer", "agents"),
)
QUIET = ("target", "metadata", "handoffs", "argument-hint")
MAX_PROMPT = 30_000


def read_copilot(reading: SpecReader) -> AgentSpec:
    fields = reading.fields
    title = fields.text("name")
    servers = server_values(fields, "mcp-servers")
    values = tool_values(reading, ("tools",), (), tuple(servers))
    if len(reading.instructions) > MAX_PROMPT:
        reading.document.complain(
            f"the prompt has {len(reading.instructions)} characters; Copilot's limit is "
            f"{MAX_PROMPT}",
            0,
            "note",
        )
    return reading.spec(
        KEYS,
        QUIET,
        name=reading.name(reading.stem),
        title=title if title != reading.stem else "",
        description=reading.described(),
        instructions=reading.instructions,
        model=fields.model("model"),
        mcp_servers=servers,
        **_invocation(reading),
        **values | _agents(reading, values),
    )


def _agents(reading: SpecReader, values: dict[str, Any]) -> dict[str, Any]:
    """VS Code: the agents that this one may start; an empty list is none."""
    fields = reading.fields
    names = fields.names("agents")
    if names is None:
        return {}
    tools = values["tools"]
    if not names:
        rest = None if tools is None else tuple(t for t in tools if t != AGENT)
        return {"can_spawn": (), "deny": (*values["deny"], AGENT), "tools": rest}
    if tools is not None and AGENT not in tools:
        fields.complain(
            "agents", "agents are named, but `agent`, which starts them, is not in tools"
        )
    return {"can_spawn": None if "*" in names else tuple(dict.fromkeys(names))}


def _invocation(reading: SpecReader) -> dict[str, Any]:
    fields = reading.fields
    by_model = not fields.flag("disable-model-invocation")
    by_user = fields.data.get("user-invocable") is None or fields.flag("user-invocable")
    fields.taken.add("user-invocable")
    if fields.data.get("infer") is not None:
        fields.complain(
            "infer", "infer is deprecated", "warning", "write disable-model-invocation instead"
        )
        by_model = by_model and fields.flag("infer")
    if not by_model and not by_user:
        fields.complain(
            "user-invocable", "neither users nor models can invoke this agent, so it is disabled"
        )
        return {"disabled": True}
    mode: Literal["", "primary", "subagent"] = "subagent" if by_model else "primary"
    if by_model and by_user:
        mode = ""
    return {"mode": mode}
