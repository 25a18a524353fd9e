"""The content of a definition file in any dialect, and the problems found in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from retinue.core.values import Budget, Value
from retinue.formats.suggestion import nearest

Severity = Literal["error", "warning", "note"]
Scope = Literal["command", "project", "user", "built-in"]
Dialect = Literal["retinue", "claude", "opencode", "codex", "copilot", "gemini", "cursor"]
PermissionMode = Literal["manual", "acceptEdits", "plan", "dontAsk", "auto", "bypassPermissions"]

WIDENING: frozenset[str] = frozenset({"acceptEdits", "dontAsk", "auto", "bypassPermissions"})
"""Modes that let an agent do more without asking: a file of a project may not turn them on before
it is trusted."""

BYTES_PER_TOKEN = 4


class FileComplaint(Value):
    """One thing that is wrong with a file. An error keeps the agent from being used, a warning and
    a note do not. Line 0 is the whole file."""

    path: str
    message: str
    line: int = 0
    severity: Severity = "warning"
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        tail = f" ({self.hint})" if self.hint else ""
        return f"{where}: {self.severity}: {self.message}{tail}"


class DefinitionSource(Value):
    """Where a definition was read. `key` is its place in a file that holds several."""

    path: str = ""
    dialect: Dialect = "retinue"
    scope: Scope = "project"
    key: str = ""
    line: int = 1


class AgentSpec(Value):
    """An agent as a file describes it. None means that the file leaves it to the run that starts
    the agent.

    `tools` are names of ours, `agent` standing for everything that starts others, or
    `mcp__server__tool`. `can_spawn` are names or globs of agents. `rules` are permissions as
    `core.permissions` reads them (`allow: shell(git *)`), in the file's order: where two disagree,
    the file means the later one. `extra` keeps every key that has no field here. Times are
    seconds."""

    name: str
    description: str = ""
    instructions: str = ""
    title: str = ""
    model: str | None = None
    tools: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    can_spawn: tuple[str, ...] | None = None
    permission_mode: PermissionMode | None = None
    max_turns: int | None = None
    timeout: float | None = None
    budget: Budget = Budget()
    output_schema: dict[str, Any] | None = None
    skills: tuple[str, ...] = ()
    mcp_servers: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    isolation: Literal["", "worktree"] = ""
    background: bool = False
    effort: str = ""
    temperature: float | None = None
    job: str = ""
    hidden: bool = False
    disabled: bool = False
    mode: Literal["", "primary", "subagent", "all"] = ""
    source: DefinitionSource = DefinitionSource()
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    complaints: tuple[FileComplaint, ...] = ()

    @property
    def broken(self) -> bool:
        return any(c.severity == "error" for c in self.complaints)

    @property
    def spawns(self) -> bool:
        """Whether the file says that its agent starts others."""
        return "agent" not in self.deny and (bool(self.can_spawn) or "agent" in (self.tools or ()))

    @property
    def tokens(self) -> int:
        return tokens_in(self.instructions)


class Shadowed(Value):
    """A definition that is not used, because another of the same name is nearer."""

    spec: AgentSpec
    by: str


class FoundAgents(Value):
    """All agents that were found. `broken` ones are named, so that they can be fixed, and cannot be
    used."""

    agents: dict[str, AgentSpec] = msgspec.field(default_factory=dict)
    broken: tuple[AgentSpec, ...] = ()
    shadowed: tuple[Shadowed, ...] = ()
    complaints: tuple[FileComplaint, ...] = ()
    searched: tuple[str, ...] = ()

    def everything(self) -> tuple[AgentSpec, ...]:
        return (*self.agents.values(), *self.broken)


def tokens_in(text: str) -> int:
    """About how many tokens a text costs: a rule of thumb, since only the model's own tokenizer
    knows."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def hint_at(word: str, known_names: Iterable[str]) -> str:
    """A hint for a word that is not known, or nothing."""
    name = nearest(word, known_names, cutoff=0.7)
    return f"did you mean {name!r}?" if name else ""
