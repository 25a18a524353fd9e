"""Makes the plan of a run from a command's input: its agent, the agents it may start, files in
prompts, MCP servers and models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from retinue.config.schema import Configuration
from retinue.errors import ConfigError
from retinue.host import model_choice, project_agents, run_defaults
from retinue.host.agent_servers import own_sources, without_definitions
from retinue.host.mcp_sources import find_servers
from retinue.host.plan import FAMILY, MAIN, Plan
from retinue.host.project import Project
from retinue.host.run_setup import RunSetup


@dataclass(frozen=True)
class PlannedRun:
    """A plan, the choice of its model, and what the host needs in addition: `env`, the values of
    variables that servers name. `notes` are lines for the person; `left_out` are servers that are
    not started."""

    plan: Plan
    choice: model_choice.ModelChoice
    env: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    left_out: tuple[dict[str, Any], ...] = ()

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.plan.specs if spec.name != self.plan.lead)


def make_plan(project: Project, setup: RunSetup, value: Configuration | None = None) -> PlannedRun:
    """The agents of a run: from the request, from the configuration `value`, and from files."""
    value = value or Configuration()
    usual, family_settings = run_defaults.families(value)
    families = usual if setup.families is None else setup.families
    only, never = run_defaults.tools(value)
    trusted = project.trust.is_trusted
    agents = project_agents.library(project, setup.agent_file, trusted=trusted)
    lead = project_agents.lead_of(agents, setup.agent)
    names = [
        run_defaults.model_name(name, value)
        for name in (setup.model, lead.model or "", setup.config_model)
    ]
    choice = model_choice.choose(project.environ, flag=names[0], agent=names[1], config=names[2])
    run_defaults.refuse_model(choice.model, value.models.allow)
    lead = replace(lead, model=None, output_schema=setup.output_schema or lead.output_schema)
    if not lead.instructions:
        lead = replace(lead, instructions=MAIN.instructions)
    if families is not None and not families:
        lead = replace(lead, deny=(*lead.deny, "agent"), can_spawn=())
    specs = project_agents.staff_of(agents, lead, trusted=trusted)
    models, unknown = _models(project, specs.values(), value)
    offered, unusable = _offered(project, value)
    servers = find_servers(
        project,
        setup.mcp_config,
        strict=setup.strict_mcp_config,
        trusted=trusted,
        more=value.mcp_servers,
        disabled=value.mcp.disabled,
    )
    sources, env = servers.for_plan(project.environ)
    owners = () if setup.strict_mcp_config else specs.values()
    own = own_sources(owners, project.environ, value.mcp.disabled)
    plan = Plan(
        lead=lead.name,
        specs=tuple(replace(without_definitions(spec), complaints=()) for spec in specs.values()),
        model=choice.model,
        models=models,
        offered=offered,
        families=tuple(families) if families is not None else (FAMILY,),
        settings=family_settings,
        writers=value.agents.writers,
        access=run_defaults.access(value),
        only=only,
        never=never,
        files=_files(project, trusted),
        skills=tuple(
            replace(s, complaints=())
            for s in project_agents.skills(project, trusted=trusted).values()
        ),
        servers=sources,
        own_servers=own.servers,
        root=project.paths.root,
    )
    if choice.model == model_choice.OFFLINE:
        unknown = []  # the explorer starts none of them
    notes = [*unknown, *unusable, *filter(None, [project.trust.why_not])]
    left_out = (*servers.left_out, *own.left_out)
    return PlannedRun(plan, choice, {**env, **own.env}, tuple(notes), left_out)


def _models(project: Project, specs: Any, value: Configuration) -> tuple[dict[str, str], list[str]]:
    """The models that names in files resolve to. One that cannot be used here is reported, and its
    agent uses the model of the run."""
    models: dict[str, str] = {}
    without: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        if spec.model and spec.model != "inherit":
            try:
                model_name = model_choice.checked(
                    run_defaults.model_name(spec.model, value), project.environ
                )
                run_defaults.refuse_model(model_name, value.models.allow)
                models[spec.model] = model_name
            except ConfigError as error:
                why = error.problem.rstrip(".")
                without.setdefault((spec.model, why), []).append(spec.name)
    if len(without) > 1:
        names = [name for group in without.values() for name in group]
        return models, [_instead_of_several(names)]
    return models, [_instead(names, model, why) for (model, why), names in without.items()]


def _offered(project: Project, value: Configuration) -> tuple[tuple[str, ...], list[str]]:
    """The models that runs may ask for by their full names, and a line for each that cannot be used
    here."""
    names, notes = [], []
    for name in value.models.offered:
        try:
            model_name = model_choice.checked(run_defaults.model_name(name, value), project.environ)
            run_defaults.refuse_model(model_name, value.models.allow)
            names.append(model_name)
        except ConfigError as error:
            notes.append(f"models.offered: {name} cannot be used: {error}")
    return tuple(dict.fromkeys(names)), notes


def _instead(names: Sequence[str], model: str, why: str) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    who = f"Agent {names[0]}" if len(names) == 1 else f"Agents {', '.join(names[:3])}{more}"
    return f"{who}: model {model} is not available ({why}); using the run's model."


def _instead_of_several(names: Sequence[str]) -> str:
    """One line, whichever of them will be started."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"Agents {', '.join(names[:3])}{more}: their models are not available here; if they are "
        "started, they use the run's model."
    )


def _files(project: Project, trusted: bool) -> Any:
    from retinue.agent_files.agents_md import loaded_files

    return loaded_files(
        project.paths.cwd, project.paths.root, trusted=trusted, hide=project.redactor.clean_bytes
    )
