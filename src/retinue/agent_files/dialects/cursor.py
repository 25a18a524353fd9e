"""Cursor's agents: five keys. A read-only agent has the tools that can only look."""

from __future__ import annotations

from retinue.agent_files.agent_spec import AgentSpec
from retinue.agent_files.dialects.spec_reader import SpecReader
from retinue.agent_files.tool_alias_table import READING

KEYS = ("name", "description", "model", "readonly", "is_background")
QUIET = ("tools", "color")


def read_cursor(reading: SpecReader) -> AgentSpec:
    fields = reading.fields
    name = fields.text("name")
    readonly = fields.flag("readonly", unclear=True)
    if "tools" in fields.data:
        fields.complain(
            "tools",
            "Cursor's agents cannot choose their tools; the key was kept",
            "warning",
        )
    return reading.spec(
        KEYS,
        QUIET,
        name=reading.name(name),
        description=reading.described(),
        instructions=reading.instructions,
        model=fields.model("model"),
        tools=READING if readonly else None,
        background=fields.flag("is_background"),
    )
