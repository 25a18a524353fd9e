"""From what a command was told to the plan of a run: its agent, everybody that it may start, the files that they are
told of, the servers whose tools they have, and the models that they work with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from retinue.cli.context import Door
from retinue.config.schema import Configuration
from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of
from retinue.errors import ConfigError
from retinue.host import model_choice as provider
from retinue.host import project_agents as shelved
from retinue.host import run_defaults as configured
from retinue.host.mcp_sources import find_servers
from retinue.host.plan import FAMILY, MAIN, Plan
from retinue.host.project_trust import is_trusted, why_not


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
    value: Configuration | None = None,
) -> Planned:
    """`families` of None are those of the configuration `value`, or the usual ones; an empty one means that the agent
    works alone."""
    value = value or Configuration()
    usual, family_settings = configured.families(value)
    families = usual if families is None else families
    only, never = configured.tools(value)
    trusted = is_trusted(door)
    found = shelved.library(door, agents, trusted=trusted)
    lead = shelved.lead_of(found, agent)
    names = [configured.model_name(name, value) for name in (model, lead.model or "", config_model)]
    choice = provider.choose(door.environ, flag=names[0], agent=names[1], config=names[2])
    configured.refuse_model(choice.model, value.models.allow)
    lead = replace(lead, model=None, output_schema=output or lead.output_schema)
    if not lead.instructions:
        lead = replace(lead, instructions=MAIN.instructions)
    if families is not None and not families:
        lead = replace(lead, deny=(*lead.deny, "agent"), can_spawn=())
    specs = shelved.staff_of(found, lead, trusted=trusted)
    models, unknown = _models(door, specs.values(), value)
    offered, unusable = _offered(door, value)
    servers = find_servers(
        door, mcp, strict=strict_mcp, trusted=trusted, more=value.mcp_servers, disabled=value.mcp.disabled
    )
    sources, env = servers.told(door.environ)
    plan = Plan(
        lead=lead.name,
        specs=tuple(replace(spec, complaints=()) for spec in specs.values()),
        model=choice.model,
        models=models,
        offered=offered,
        families=tuple(families) if families is not None else (FAMILY,),
        settings=family_settings,
        access=configured.access(value),
        only=only,
        never=never,
        files=_files(door, trusted),
        skills=tuple(replace(s, complaints=()) for s in shelved.skills(door, trusted=trusted).values()),
        servers=sources,
        root=door.places.root,
    )
    notes = [*unknown, *unusable, *filter(None, [why_not(door)])]
    return Planned(plan, choice, env, tuple(notes), tuple(servers.left_out))


def _models(door: Door, specs: Any, value: Configuration) -> tuple[dict[str, str], list[str]]:
    """What the names of models in files stand for. One that cannot be used here is told, and its agent works with the
    model of the run."""
    models: dict[str, str] = {}
    without: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        if spec.model and spec.model != "inherit":
            try:
                found = provider.checked(configured.model_name(spec.model, value), door.environ)
                configured.refuse_model(found, value.models.allow)
                models[spec.model] = found
            except ConfigError as error:
                why = str(error).split(": ")[0].split(". ")[0].rstrip(".")
                without.setdefault((spec.model, why), []).append(spec.name)
    return models, [_instead(names, model, why) for (model, why), names in without.items()]


def _offered(door: Door, value: Configuration) -> tuple[tuple[str, ...], list[str]]:
    """The models that runs may ask for by their full names, and a line for each that cannot be used here."""
    names, notes = [], []
    for name in value.models.offered:
        try:
            found = provider.checked(configured.model_name(name, value), door.environ)
            configured.refuse_model(found, value.models.allow)
            names.append(found)
        except ConfigError as error:
            notes.append(f"models.offered: {name} cannot be used: {error}")
    return tuple(dict.fromkeys(names)), notes


def _instead(names: Sequence[str], model: str, why: str) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    who = f"agent {names[0]} works" if len(names) == 1 else f"agents {', '.join(names[:3])}{more} work"
    return f"{who} with the run's model instead of {model}: {why}"


def _files(door: Door, trusted: bool) -> Any:
    from retinue.agent_files.agents_md import loaded_files

    redactor = Redactor(secrets_of(door.environ))
    return loaded_files(door.places.cwd, door.places.root, trusted=trusted, hide=redactor.clean_bytes)
