"""From what a command was told to the plan of a run: its agent, everybody that it may start, the files that they are
told of, the servers whose tools they have, and the models that they work with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from retinue.cli import provider, shelved
from retinue.cli.door import Door
from retinue.cli.mcp_files import find_servers
from retinue.cli.plan import FAMILY, MAIN, Plan
from retinue.cli.trusting import is_trusted
from retinue.errors import ConfigError

if TYPE_CHECKING:
    from retinue.library.spec import AgentSpec, Library


@dataclass(frozen=True)
class Planned:
    """A plan, the choice of its model, and what the host has to be told beside it: `env`, the values of variables that
    servers name. `notes` are lines for the person; `left_out` are servers that are not started."""

    plan: Plan
    choice: provider.Choice
    env: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    left_out: tuple[dict[str, Any], ...] = ()

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.plan.specs if spec.name != self.plan.lead)


def make_plan(
    door: Door,
    *,
    agent: str = "",
    agents: str = "",
    families: Sequence[str] | None = None,
    output: dict[str, Any] | None = None,
    model: str = "",
    config_model: str = "",
    mcp: Sequence[str] = (),
    strict_mcp: bool = False,
) -> Planned:
    """`families` of None are the usual ones; an empty one means that the agent works alone."""
    trusted = is_trusted(door)
    found = shelved.library(door, agents, trusted=trusted)
    lead = shelved.lead_of(found, agent)
    choice = provider.choose(door.environ, flag=model, agent=lead.model or "", config=config_model)
    lead = replace(lead, model=None, output_schema=output or lead.output_schema)
    if not lead.instructions:
        lead = replace(lead, instructions=MAIN.instructions)
    if families is not None and not families:
        lead = replace(lead, deny=(*lead.deny, "agent"), can_spawn=())
    specs = shelved.staff_of(found, lead, trusted=trusted)
    models, unknown = _models(door, specs.values())
    servers = find_servers(door, mcp, strict=strict_mcp, trusted=trusted)
    plan = Plan(
        lead=lead.name,
        specs=tuple(replace(spec, complaints=()) for spec in specs.values()),
        model=choice.model,
        models=models,
        families=tuple(families) if families is not None else (FAMILY,),
        files=_files(door, trusted),
        skills=tuple(replace(s, complaints=()) for s in shelved.skills(door, trusted=trusted).values()),
        servers=tuple(servers.sources),
        root=door.places.root,
    )
    notes = [*unknown, *_inert(door, found, servers.left_out, trusted)]
    env = {name: value for name, value in door.environ.items() if servers.sources and name in servers.env}
    return Planned(plan, choice, env, tuple(notes), tuple(servers.left_out))


def _models(door: Door, specs: Any) -> tuple[dict[str, str], list[str]]:
    """What the names of models in files stand for. One that cannot be used here is told, and its agent works with the
    model of the run."""
    models: dict[str, str] = {}
    notes: dict[str, None] = {}
    for spec in specs:
        if spec.model and spec.model != "inherit":
            try:
                models[spec.model] = provider.checked(spec.model, door.environ)
            except ConfigError as error:
                why = str(error).split(": ")[0].split(". ")[0].rstrip(".")
                notes[f"agent {spec.name} works with the run's model instead of {spec.model}: {why}"] = None
    return models, list(notes)


def _files(door: Door, trusted: bool) -> Any:
    from retinue.library.context import loaded_files

    return loaded_files(door.places.cwd, door.places.root, trusted=trusted)


def _inert(door: Door, found: Library, servers: Sequence[dict[str, Any]], trusted: bool) -> list[str]:
    """One line about what a project would bring along if it were trusted."""
    if trusted:
        return []
    from retinue.library.context import loaded_files

    def count(n: int, what: str) -> str:
        return f"{n} {what}{'s' if n > 1 else ''}" if n else ""

    agents: list[AgentSpec] = [s for s in found.agents.values() if s.source.scope == "project"]
    files = loaded_files(door.places.cwd, door.places.root, trusted=True)
    untrusted = [s for s in servers if s["status"] == "untrusted"]
    parts = [
        ", ".join(dict.fromkeys(f.path.rpartition("/")[2] for f in files)),
        count(len(agents), "agent"),
        count(len(untrusted), "MCP server"),
    ]
    told = [part for part in parts if part]
    return [f"not used before you trust this project (retinue trust): {', '.join(told)}"] if told else []
