"""The project of an editor session: its paths, configuration and the plan of its runs, the same as
for a command in that directory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from acp import schema

from retinue import current_models
from retinue.errors import ConfigError
from retinue.host import model_choice, project_config, project_paths, run_defaults
from retinue.host.keys import carried
from retinue.host.planner import PlannedRun, make_plan
from retinue.host.project import Project
from retinue.host.requests import RunTerms
from retinue.host.run_setup import RunSetup, family_names

OF_CLIENT = ("agent", "model", "family", "permission_mode", "max_budget_usd")
"""What the command `retinue acp` sets for all sessions."""


@dataclass(frozen=True)
class EditorProject:
    """`flags` are those of the command, `servers` the MCP servers that the editor gives to the
    session, as a configuration file would have them."""

    environ: Mapping[str, str]
    cwd: str
    store: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()

    def prepare(self) -> tuple[project_paths.ProjectPaths, dict[str, str]]:
        """The places of the project and the environment for its host."""
        project = self._project()
        project_paths.prepare(project.environ, project.paths, is_project=not self.store)
        return project.paths, carried(run_defaults.environment(project))

    def _project(self) -> Project:
        paths = project_paths.find(self.environ, cwd=self.cwd, store=self.store)
        return Project.of(self.environ, paths)

    def _setup(self, project: Project, settings: Any, model: str) -> RunSetup:
        is_set = {name: bool(self.flags.get(name)) for name in OF_CLIENT}
        values = {
            **run_defaults.defaults(settings, is_set),
            **{name: self.flags[name] for name, is_given in is_set.items() if is_given},
        }
        folders = run_defaults.joined(settings, {}, "add_dir", self.folders)
        return RunSetup(
            agent=values.get("agent", ""),
            model=model or values.get("model", ""),
            config_model=run_defaults.default_model(settings),
            families=family_names(self.flags.get("family") or ()),
            mcp_config=(*self.servers, *run_defaults.joined(settings, {}, "mcp_config", ())),
            strict_mcp_config=bool(values.get("strict_mcp_config")),
            max_budget_usd=values.get("max_budget_usd"),
            max_tokens=values.get("max_tokens"),
            on_limit=values.get("on_limit") or "",
            max_turns=values.get("max_turns"),
            timeout=values.get("timeout"),
            permission_mode=values.get("permission_mode", ""),
            rules=settings.rules,
            add_dir=tuple(
                os.path.normpath(os.path.join(project.paths.root, os.path.expanduser(folder)))
                for folder in folders
            ),
        )

    def plan(self, model: str = "") -> tuple[PlannedRun, RunTerms]:
        """Who works in this session, and on which terms. Raises `ConfigError` for what is wrong
        with the configuration."""
        project = self._project()
        settings = project_config.load(project)
        setup = self._setup(project, settings, model)
        environ = run_defaults.environment(project, settings)
        project = dataclasses.replace(project, environ=environ)
        planned = make_plan(project, setup, settings.value)
        return planned, setup.terms(project.paths.cwd, "ask")

    def models(self, current: str) -> tuple[str, ...]:
        """The models that a person can choose here: the current one, the default of each provider
        whose key is set, and the explorer."""
        project = self._project()
        environ = run_defaults.environment(project)
        names = [current]
        for provider, model in current_models.defaults().items():
            try:
                names.append(model_choice.checked(f"{provider}:{model}", environ))
            except ConfigError:
                continue
        return tuple(dict.fromkeys((*names, model_choice.OFFLINE)))

    def has_key(self) -> bool:
        return model_choice.has_key(run_defaults.environment(self._project()))


def server_texts(servers: Iterable[Any]) -> tuple[str, ...]:
    """The MCP servers of an editor, each as the text of a configuration file. Those that only the
    editor itself could reach are omitted."""
    out = []
    for server in servers:
        entry: dict[str, Any]
        if isinstance(server, schema.McpServerStdio):
            env = {variable.name: variable.value for variable in server.env}
            entry = {"command": server.command, "args": list(server.args), "env": env}
        elif isinstance(server, schema.HttpMcpServer | schema.SseMcpServer):
            headers = {header.name: header.value for header in server.headers}
            entry = {"type": server.type, "url": server.url, "headers": headers}
        else:
            continue
        out.append(msgspec.json.encode({"mcpServers": {server.name: entry}}).decode())
    return tuple(out)
