"""Plans for clients that name an agent and a model, made from the files of the host's project as a
command in that directory would."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from retinue.host.plan import Plan
from retinue.host.project import Project
from retinue.host.project_paths import ProjectPaths
from retinue.host.replies import AgentInfo, AgentList, FileFault


class ProjectPlanner:
    """`environ` gives what commands have brought: keys, and where the user's folders are."""

    def __init__(
        self, root: str, store: str, socket: str, environ: Callable[[], Mapping[str, str]]
    ) -> None:
        self._paths = ProjectPaths(root=root, cwd=root, store=store, socket=socket, log="")
        self._environ = environ

    def _project(self) -> Project:
        return Project.of({**os.environ, **self._environ()}, self._paths)

    def plan(
        self, agent: str, model: str, families: tuple[str, ...] | None
    ) -> tuple[Plan, dict[str, str]]:
        """All agents of a run of this agent, and the values that its servers need."""
        from retinue.host import project_config, run_defaults
        from retinue.host.planner import make_plan
        from retinue.host.run_setup import RunSetup, family_names

        project = self._project()
        settings = project_config.load(project)
        setup = RunSetup(
            agent=agent or settings.get("agents.default"),
            model=model,
            families=() if families == () else family_names(families or ()),
            config_model=run_defaults.default_model(settings),
            mcp_config=run_defaults.joined(settings, {}, "mcp_config", ()),
            strict_mcp_config=settings.get("mcp.strict"),
        )
        planned = make_plan(project, setup, settings.value)
        return planned.plan, planned.env

    def definitions(self) -> AgentList:
        from retinue.agent_files.lint import lint
        from retinue.host.project_agents import library

        files = library(self._project())
        agents = (
            AgentInfo(
                name=spec.name,
                description=spec.description,
                model=spec.model,
                tools=spec.tools,
                scope=spec.source.scope,
                path=spec.source.path,
                dialect=spec.source.dialect,
            )
            for spec in files.agents.values()
            if not spec.disabled
        )
        faults = (
            FileFault(path=c.path, line=c.line, severity=c.severity, message=c.message, hint=c.hint)
            for c in lint(files)
        )
        return AgentList(agents=tuple(agents), faults=tuple(faults))
