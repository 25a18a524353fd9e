"""Agents from definition files: the library's functions, for commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from retinue.cli.door import Door
from retinue.cli.places import config_home
from retinue.cli.plan import TOOLS, AgentPlan
from retinue.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from retinue.library.spec import AgentSpec, Library


def library(door: Door) -> Library:
    """The agents that can be found from where the command was given."""
    from retinue.library.find import find_agents

    config = os.path.dirname(config_home(door.environ))
    home = door.environ.get("HOME") or None
    codex = door.environ.get("CODEX_HOME") or None
    return find_agents(door.places.cwd, home, door.places.root, config_home=config, codex_home=codex)


def named_agent(door: Door, name: str) -> AgentPlan:
    """The plan of an agent that a file defines."""
    found = library(door)
    spec = found.agents.get(name)
    if spec is None:
        broken = [s for s in found.broken if s.name == name]
        if broken:
            raise ConfigError(f"agent {name!r} cannot be used: {broken[0].complaints[0]}")
        raise NotFound(f"there is no agent {name!r} here. `retinue agents list` shows those that there are.")
    return plan_of(spec)


def plan_of(spec: AgentSpec) -> AgentPlan:
    """A definition as a plan. What a file leaves open is as for any other agent."""
    names = TOOLS if spec.tools is None else tuple(t for t in spec.tools if t != "agent")
    return AgentPlan(
        name=spec.name,
        description=spec.description,
        instructions=spec.instructions or AgentPlan().instructions,
        model=spec.model or "",
        tools=tuple(t for t in names if t not in spec.deny),
        families=() if spec.tools is not None and not spec.spawns else AgentPlan().families,
        output=spec.output_schema,
        max_turns=spec.max_turns,
        timeout_seconds=spec.timeout,
    )
