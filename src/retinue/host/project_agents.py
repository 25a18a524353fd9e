"""Agents from definition files, for commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from retinue.errors import ConfigError, NotFound
from retinue.host import project_config
from retinue.host.plan import MAIN
from retinue.host.project import Project
from retinue.host.project_paths import config_home

if TYPE_CHECKING:
    from retinue.agent_files.agent_spec import AgentSpec, FoundAgents
    from retinue.agent_files.skills import Skill


def library(project: Project, agents: str = "", *, trusted: bool | None = None) -> FoundAgents:
    """The agents that can be found from where the command was given; `agents` is the value of
    --agents. Those of the folders that are configured come behind."""
    from retinue.agent_files.discovery import find_agents

    folders = _folders(project)
    config = os.path.dirname(config_home(project.environ))
    home = project.environ.get("HOME") or None
    codex = project.environ.get("CODEX_HOME") or None
    files = find_agents(
        project.paths.cwd,
        home,
        project.paths.root,
        [*([_path(project, agents)] if agents else ()), *folders],
        project.trust.is_trusted if trusted is None else trusted,
        builtin=(MAIN,),
        config_home=config,
        codex_home=codex,
    )
    ours = tuple(os.path.join(folder, "") for folder in folders)
    faults = [
        s
        for s in files.broken
        if s.source.scope == "command" and not s.source.path.startswith(ours)
    ]
    wrong = [c for s in faults for c in s.complaints if c.severity == "error"]
    paths = (_path(project, agents)[:200], "--agents") if agents else ()
    wrong += [c for c in files.complaints if c.severity != "note" and c.path in paths]
    if wrong:
        where = "" if "--agents" in wrong[0].path else "--agents: "
        raise ConfigError(f"{where}{wrong[0]}")
    return files


def _folders(project: Project) -> list[str]:
    """The folders of definitions that the user's own file names; a relative path begins at that
    file."""
    home = config_home(project.environ)
    names = project_config.load(project, strict=False).get("agents.directories")
    folders = [os.path.realpath(os.path.join(home, os.path.expanduser(folder))) for folder in names]
    for folder in folders:
        if not os.path.isdir(folder):
            raise ConfigError(f"agents.directories: folder {folder} not found")
    return folders


def _path(project: Project, agents: str) -> str:
    is_json = agents.lstrip().startswith("{")
    return agents if is_json else os.path.join(project.paths.cwd, os.path.expanduser(agents))


def lead_of(agents: FoundAgents, name: str) -> AgentSpec:
    """The agent that was asked for by its name; the built-in one when none was, whatever a file
    calls itself."""
    if not name:
        return MAIN
    spec = agents.agents.get(name)
    if spec is not None and not spec.disabled:
        return spec
    faulty = next((s for s in agents.broken if s.name == name), None)
    if faulty is not None:
        why = next((c for c in faulty.complaints if c.severity == "error"), faulty.complaints[0])
        raise ConfigError(f"Agent {name!r} cannot be used: {why}")
    if spec is not None:
        raise ConfigError(f"Agent {name!r} is disabled in its file, {spec.source.path}")
    from retinue.formats.suggestion import did_you_mean

    hint = did_you_mean(name, agents.agents)
    raise NotFound(f"Unknown agent {name!r}.{hint} Run `retinue agents list` to list them.")


def staff_of(agents: FoundAgents, lead: AgentSpec, *, trusted: bool) -> dict[str, AgentSpec]:
    """Whom the lead may meet: all agents, but for those of a project that no one has trusted."""
    out = {lead.name: lead}
    for name, spec in agents.agents.items():
        is_known = trusted or spec.source.scope != "project"
        if is_known and not spec.disabled and spec.source.scope != "built-in" and name != MAIN.name:
            out.setdefault(name, spec)
    return out


def skills(project: Project, *, trusted: bool) -> dict[str, Skill]:
    from retinue.agent_files.skill_discovery import find_skills

    home = project.environ.get("HOME") or None
    return find_skills(project.paths.cwd, home, project.paths.root, trusted).skills
