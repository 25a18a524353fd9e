"""The plan of a run as a value: everything a host needs to build the agents of a run, also after a
crash. No keys."""

from __future__ import annotations

import hashlib
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from retinue.agent_files.agent_spec import AgentSpec, DefinitionSource
from retinue.agent_files.agents_md import AgentsMdFile
from retinue.agent_files.skills import Skill
from retinue.core.values import Permissions, Value

FAMILY = "delegate"
INSTRUCTIONS = """You work in a project directory for a user who reads only your final message.

Check before you claim: read files, search, and run commands you are allowed to run. Cite places as
path:line. Give independent parts of the task to sub-agents when that saves time or context, and
check their reports. If a call is refused, do not work around it: do what you can, and say what is
missing. Finish with a complete, short answer."""
MAIN = AgentSpec(
    name="main",
    description="The default agent.",
    instructions=INSTRUCTIONS,
    source=DefinitionSource(scope="built-in"),
)


class ServerSource(Value):
    """MCP servers as one file has them, by name. Variables are not filled in: their values are
    never written down."""

    file: str = ""
    dialect: str = "claude"
    servers: dict[str, Any] = msgspec.field(default_factory=dict)


class Plan(Value):
    """The agent that a run starts with (`lead`), and everyone that it may start.

    `model` is for agents that name none; `models` maps the names in files to models; `offered` can
    be requested in addition. `settings` are those of the families; `writers` says how several
    sub-agents write at a time. `access` is the most that anyone may do; `only` and `never` are
    patterns of tools. `own_servers` are those that an agent has for itself, by its name. `files`
    are quoted in the instructions. `variant` tells apart agents whose servers had other tools at
    another time.
    """

    version: int = 2
    lead: str = MAIN.name
    specs: tuple[AgentSpec, ...] = (MAIN,)
    model: str = ""
    models: dict[str, str] = msgspec.field(default_factory=dict)
    offered: tuple[str, ...] = ()
    families: tuple[str, ...] = (FAMILY,)
    settings: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    writers: Literal["worktrees", "turns"] = "worktrees"
    access: Permissions = Permissions()
    only: tuple[str, ...] | None = None
    never: tuple[str, ...] = ()
    files: tuple[AgentsMdFile, ...] = ()
    skills: tuple[Skill, ...] = ()
    servers: tuple[ServerSource, ...] = ()
    own_servers: dict[str, ServerSource] = msgspec.field(default_factory=dict)
    root: str = ""
    variant: str = ""

    @property
    def stamp(self) -> str:
        """Two plans with the same stamp are the same agents."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:8]

    def has(self, tool: str) -> bool:
        """Whether a tool is among those that are left."""
        is_on = self.only is None or any(fnmatchcase(tool, pattern) for pattern in self.only)
        return is_on and not any(fnmatchcase(tool, pattern) for pattern in self.never)

    @property
    def agent_name(self) -> str:
        """The name under which its agent is known in a store, where another plan may have one of
        the same name."""
        return f"{self.lead}-{self.stamp}"
