"""Gemini CLI's agents: wildcards in tools, limits in turns and minutes; remote agents are reported,
not started."""

from __future__ import annotations

from typing import Any

from retinue.agent_files.agent_spec import AgentSpec
from retinue.agent_files.dialects.spec_reader import SpecReader, server_values, tool_values

KEYS = (
    *(
        "name",
        "description",
        "kind",
        "tools",
        "mcpServers",
        "model",
        "temperature",
        "max_turns",
        "timeout_mins",
    ),
    *("agent_card_url", "agent_card_json", "display_name"),
)
REMOTE = ("agent_card_url", "agent_card_json", "auth")
MAX_TURNS, TIMEOUT_MINUTES = 30, 10.0
"""What Gemini CLI gives an agent that says nothing."""


def read_gemini(reading: SpecReader) -> AgentSpec:
    fields = reading.fields
    name = fields.text("name")
    if not name:
        fields.complain("name", f"name is missing; the file name {reading.stem!r} is used")
    kind = fields.choice(("local", "remote"), "kind") or "local"
    remote = kind == "remote"
    if remote:
        fields.complain("kind", "remote agents (A2A) are not supported; it is disabled")
    servers = server_values(fields, "mcpServers")
    minutes = fields.number("timeout_mins", least=0.0)
    values: dict[str, Any] = tool_values(reading, ("tools",), (), tuple(servers))
    spec = reading.spec(
        KEYS,
        REMOTE if remote else (),
        name=reading.name(name),
        title=fields.text("display_name"),
        description=reading.described(needed=not remote),
        instructions=reading.instructions,
        model=fields.model("model"),
        temperature=fields.number("temperature"),
        max_turns=fields.whole("max_turns") or MAX_TURNS,
        timeout=60.0 * (minutes or TIMEOUT_MINUTES),
        mcp_servers=servers,
        disabled=remote,
        **values,
    )
    if remote:
        spec.extra["kind"] = kind
    return spec
