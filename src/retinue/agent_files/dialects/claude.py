"""Claude Code's agents, and our own: the same names, and budget, output_schema, can_spawn, job."""

from __future__ import annotations

from typing import Any

from retinue.agent_files.agent_spec import AgentSpec
from retinue.agent_files.dialects.spec_reader import SpecReader, server_values, tool_values
from retinue.agent_files.field_values import EFFORTS
from retinue.agent_files.tool_alias_table import AGENT

KEYS = (
    *(
        "name",
        "description",
        "tools",
        "disallowedTools",
        "model",
        "permissionMode",
        "maxTurns",
        "skills",
        "mcpServers",
    ),
    *("hooks", "memory", "background", "isolation", "effort", "color", "initialPrompt"),
)
OURS = (
    *KEYS,
    "budget",
    "output_schema",
    "can_spawn",
    "job",
    "timeout",
    "temperature",
    "hidden",
    "disabled",
    "mode",
)
QUIET = (
    "hooks",
    "color",
    "memory",
    "initialPrompt",
    "version",
    "author",
    "license",
    "tags",
    "metadata",
)
"""Keys that are known, kept, and without effect here; the last four are what people write of their
own accord."""


def read_claude(reading: SpecReader) -> AgentSpec:
    fields = reading.fields
    name = fields.text("name")
    if not name and reading.document.has_head and not reading.key:
        fields.complain("name", f"name is missing; the file name {reading.stem!r} is used")
    return reading.spec(
        KEYS,
        QUIET,
        name=reading.name(name),
        description=reading.described(),
        **_common(reading, ours=False),
    )


def read_ours(reading: SpecReader) -> AgentSpec:
    """Names may be written in either way, maxTurns or max_turns, since TOML prefers the second."""
    fields = reading.fields
    name = reading.name(fields.text("name"))
    budget = fields.budget("budget")
    output_schema = fields.schema("output_schema", "outputSchema", "output-schema")
    values = _common(reading, ours=True)
    if (spawn := fields.names("can_spawn", "canSpawn", "can-spawn")) is not None:
        values |= _can_spawn(reading, values, spawn)
    return reading.spec(
        OURS,
        QUIET,
        name=name,
        description=reading.described(),
        budget=budget,
        output_schema=output_schema,
        job=fields.text("job"),
        timeout=fields.seconds("timeout"),
        temperature=fields.number("temperature"),
        hidden=fields.flag("hidden"),
        disabled=fields.flag("disabled", "disable"),
        mode=fields.choice(("primary", "subagent", "all"), "mode"),
        **values,
    )


def _can_spawn(reading: SpecReader, values: dict[str, Any], spawn: list[str]) -> dict[str, Any]:
    """An agent that may start others has the tools for it; an empty list takes them away."""
    tools, deny = values["tools"], values["deny"]
    if not spawn:
        return {
            "can_spawn": (),
            "deny": (*deny, *([] if AGENT in deny else [AGENT])),
            "tools": None if tools is None else tuple(t for t in tools if t != AGENT),
        }
    if AGENT in deny:
        reading.fields.complain(
            "can_spawn", "can_spawn names agents, but the tools to start them are denied", "error"
        )
    if values["can_spawn"] is not None and set(values["can_spawn"]) != set(spawn):
        reading.fields.complain(
            "can_spawn", "tools and can_spawn name different agents; can_spawn is used"
        )
    everyone = "*" in spawn
    return {
        "can_spawn": None if everyone else tuple(dict.fromkeys(spawn)),
        "tools": tools if tools is None or AGENT in tools else (*tools, AGENT),
    }


def _common(reading: SpecReader, *, ours: bool) -> dict[str, Any]:
    fields = reading.fields

    def names(camel: str) -> tuple[str, ...]:
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in camel)
        return (camel, snake, snake.replace("_", "-")) if ours and snake != camel else (camel,)

    servers = server_values(fields, *names("mcpServers"))
    values = tool_values(reading, ("tools",), names("disallowedTools"), tuple(servers))
    if ours:
        denied = fields.names("deny")
        if denied:
            fields.complain("deny", "deny is called disallowedTools here; it is ignored", "error")
    if fields.data.get("hooks") is not None:
        fields.complain("hooks", "hooks are not run; the key was kept", "warning")
    inline = ("instructions", "prompt") if ours else ("prompt",)
    prompt = "" if reading.instructions else fields.text(*inline)
    return {
        **values,
        "instructions": reading.instructions or prompt,
        "model": fields.model("model"),
        "permission_mode": fields.permission_mode(*names("permissionMode")),
        "max_turns": fields.whole(*names("maxTurns")),
        "skills": tuple(fields.names("skills") or ()),
        "mcp_servers": servers,
        "background": fields.flag("background"),
        "isolation": fields.choice(("worktree",), "isolation"),
        "effort": fields.choice(EFFORTS, "effort"),
    }
