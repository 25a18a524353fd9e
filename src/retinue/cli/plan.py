"""Who is to work, as a value: all that a host needs to build the agents of a run again after a crash. No keys."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from retinue.core.values import Value

TOOLS = (
    "read",
    "list",
    "search",
    "find",
    "edit",
    "write",
    "shell",
    "shell_output",
    "shell_stop",
    "git",
    "fetch",
    "think",
    "tasks",
    "ask",
)
FAMILY = "delegate"
INSTRUCTIONS = """You work in the directory of a project, for a person who reads your last message and nothing else.

Look before you claim: read files, search, run what you are permitted to run. Name places as path:line. Hand independent
parts of a task to sub-agents when that saves time or room, and check what they report. When something is refused, do
not try to get around it: do what you can without it and say what is missing. End with the answer, whole and short."""


class AgentPlan(Value):
    """One agent. `tools` are names of built-in tools; `output` is a JSON schema that its results must match."""

    name: str = "main"
    description: str = ""
    instructions: str = INSTRUCTIONS
    model: str = ""
    tools: tuple[str, ...] = TOOLS
    families: tuple[str, ...] = (FAMILY,)
    staff: tuple[AgentPlan, ...] = ()
    output: dict[str, Any] | None = None
    max_turns: int | None = None
    timeout_seconds: float | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class Plan(Value):
    """The agent that a run starts with, and what surrounds it: `settings` of its families, `mcp` servers of tools."""

    version: int = 1
    agent: AgentPlan = AgentPlan()
    root: str = ""
    mcp: dict[str, Any] = msgspec.field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)

    @property
    def stamp(self) -> str:
        """Two plans with the same stamp are the same agents."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:8]

    @property
    def agent_name(self) -> str:
        """The name under which its agent is known in a store, where another plan may have one of the same name."""
        return f"{self.agent.name}-{self.stamp}"
