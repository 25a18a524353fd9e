"""The agents and models that a runtime knows: names become tools and models, and options become
requests."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from retinue.agent import Agent, define
from retinue.config import environment_catalog
from retinue.core.capabilities import narrow
from retinue.core.model_settings import ModelSettings
from retinue.core.spawn import check_rules
from retinue.core.spec import RunRequest
from retinue.core.values import ModelInfo, Permissions, checked
from retinue.errors import ConfigError, NotFound, Refused
from retinue.models.base import Model, ModelCatalog
from retinue.models.catalog import JoinAccount
from retinue.models.declared import Provider
from retinue.models.setting_support import check_settings
from retinue.opened_toolsets import OpenedToolsets
from retinue.runtime.engine import Engine
from retinue.runtime.secret_filter import learn_from
from retinue.sandbox.open_directories import checked_directories, real_paths
from retinue.tools.base import Tool
from retinue.tools.builtin.builtin_tools import BuiltinTools
from retinue.tools.function import FunctionTool
from retinue.tools.toolbox import Toolbox

log = logging.getLogger("retinue.runs")
FAMILY_MODELS = ("model", "default_model", "explore_model")
"""Settings of families that are names of models."""


class Registry:
    """The registered agents and models. The engine uses the same `models` and toolbox. `home` is
    the default working directory of runs, without links."""

    def __init__(
        self,
        engine: Engine,
        toolbox: Toolbox,
        builtin_tools: BuiltinTools,
        models: dict[str, Model],
        catalog: ModelCatalog | Mapping[str, Model | ModelInfo | str] | None,
        home: str,
        deps: object = None,
        providers: Mapping[str, Provider] | None = None,
    ) -> None:
        self._engine, self._deps = engine, deps
        self._toolbox = toolbox
        self._builtin_tools = builtin_tools
        self._home = home
        if isinstance(catalog, Mapping):
            catalog = environment_catalog(providers, catalog)
        elif providers:
            if catalog is not None:
                raise ConfigError("Give providers to the catalog, or models as a dict.")
            catalog = environment_catalog(providers)
        self.models, self.catalog = models, catalog
        self._join: JoinAccount | None = None
        self.agents: dict[str, Agent[Any, Any]] = {}
        self.preview = toolbox.preview
        self.toolsets = OpenedToolsets()
        self.permissions = Permissions()
        """The most that any run of this runtime has."""
        engine.performer.tool_reader.know_model = self.know_model
        self.learn_keys()

    def __contains__(self, agent: Agent[Any, Any]) -> bool:
        registered = self.agents.get(agent.name)
        return registered is agent or registered == agent

    def register(self, agent: Agent[Any, Any]) -> None:
        """Register an agent with all agents below it. One that is known by the same name and is not
        the same is replaced: new runs are runs of the new one."""
        agents = list(agent.reachable_agents())
        for member in agents:
            self._check_deps(member)
        tools = {a.name: self._equip(a) for a in agents}
        models = dict(self.models)
        for member in agents:
            if isinstance(member.model, str):
                continue
            name, before = member.model_name, self.agents.get(member.name)
            model = models.get(name, member.model)
            if model is not member.model and (before is None or before.model is not model):
                raise ConfigError(f"Two different models are named {name!r}. Rename one.")
            models[name] = member.model
        boxes = Toolbox()
        for member in agents:
            boxes.add(member.name, tools[member.name])
        self.models.update(models)
        learn_from(
            self._engine.redactor, *models.values(), *(t for own in tools.values() for t in own)
        )
        for member in agents:
            if self.agents.get(member.name, member) != member:
                log.info("agent %s has changed: new runs follow its new definition", member.name)
                self._engine.performer.tools_changed()
            self._toolbox.add(member.name, tools[member.name], member.request_defaults)
            self.agents[member.name] = member
            if isinstance(member.model, str):
                self.know_model(member.model)
            self._know_family_models(member)
            self._engine.register(define(member, tools), member.model_info)
            self._check_settings(member, member.model_name, member.request_defaults)

    def learn_keys(self) -> None:
        """The catalog's, which may have been given others meanwhile, are never written down."""
        learn_from(self._engine.redactor, self.catalog)

    def share_accounts(self, join: JoinAccount | None) -> None:
        """Other processes use the same accounts at providers: `join` gets the governor of each, of
        catalogs that have governors."""
        self._join = join
        share = getattr(self.catalog, "share_accounts", None)
        if share is not None and join is not None:
            share(join)

    def know_model(self, name: str) -> None:
        """A model that is given by its name alone is looked up in the catalog."""
        catalog = self.catalog
        is_named = ":" in name or "/" in name or (catalog is not None and catalog.knows(name))
        if name not in self.models and is_named:
            if catalog is None:
                self.catalog = catalog = environment_catalog()
                self.share_accounts(self._join)
            self.learn_keys()
            self.models[name] = model = catalog.find(name)
            learn_from(self._engine.redactor, model)
            self._engine.describe(replace(model.info, name=name, resolved=catalog.resolve(name)))

    def _know_family_models(self, agent: Agent[Any, Any]) -> None:
        """Models that the settings of its families name for sub-agents. The model that asks for one
        that cannot be had reads why."""
        for family in agent.family_list:
            for setting in FAMILY_MODELS:
                with contextlib.suppress(ConfigError):
                    self.know_model(getattr(family.settings, setting, None) or "")

    def know_models(self) -> None:
        """The models of open runs that were asked for by name alone; one without a key keeps its
        runs waiting."""
        for spec, _ in list(self._engine.trees.live()):
            if spec.request.agent in self.agents:
                with contextlib.suppress(ConfigError):
                    self.know_model(spec.model)

    def _equip(self, agent: Agent[Any, Any]) -> Sequence[Tool[Any]]:
        own = agent.equip(self._builtin_tools.tool, self.toolsets.tools)
        if not own or any(t.schema.name == "artifact" for t in own):
            return own
        return (*own, self._builtin_tools.tool("artifact"))

    def request(
        self,
        agent: Agent[Any, Any],
        task: str,
        options: dict[str, Any],
        recorded: Collection[str] = (),
    ) -> RunRequest:
        """`recorded` are the directories of the run that this one continues, as real paths."""
        self.learn_keys()
        options = agent.request_options(options)
        if not options.pop("follow_links", True):
            recorded = {*recorded, *checked_directories(options, recorded)}
        self.know_model(options.get("model", ""))
        cwd = options.get("cwd") or self._home
        if cwd != self._home and cwd not in recorded:
            cwd = os.path.realpath(os.path.join(self._home, cwd))
        options["cwd"] = cwd
        self._check_settings(agent, options.get("model") or agent.model_name, options)
        try:
            request = checked(RunRequest(agent=agent.name, task=task, **options))
            if self.permissions != Permissions():
                request = replace(
                    request, permissions=narrow(self.permissions, request.permissions)
                )
            check_rules(request.permissions)
            return replace(request, permissions=real_paths(request.permissions, recorded))
        except Refused as error:
            raise ConfigError(f"Invalid run option: {error}") from None
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Invalid run option: {error}") from None

    def _check_settings(
        self, agent: Agent[Any, Any], model: str, options: Mapping[str, Any]
    ) -> None:
        """What the model of an agent does not take is said before it is asked."""
        settings, model_entry = options.get("settings"), self.models.get(model)
        if isinstance(settings, ModelSettings) and model_entry is not None:
            check_settings(settings, model_entry, model, f"Agent {agent.name!r}")

    def _check_deps(self, agent: Agent[Any, Any]) -> None:
        """Its tools get what this runtime has; it must be what the agent says that they need."""
        who, needs = f"Agent {agent.name!r}", agent.deps_type
        if needs is None and self._deps is None:
            for tool in agent.tools:
                if isinstance(tool, FunctionTool) and tool.deps_type is not None:
                    who, needs = f"Tool {tool.name!r}", tool.deps_type
        is_class = isinstance(needs, type) and not getattr(needs, "_is_protocol", False)
        if needs is None or not is_class or isinstance(self._deps, needs):
            return
        has = "none" if self._deps is None else f"a {type(self._deps).__name__}"
        raise ConfigError(
            f"{who} needs dependencies of type {needs.__name__}, and this runtime has {has}. "
            f"Write Retinue(deps={needs.__name__}(...))."
        )

    def find(self, name: str) -> Agent[Any, Any]:
        agent = self.agents.get(name)
        if agent is None:
            raise NotFound(f"Unknown agent {name!r}. Register it first.", "agent", name)
        return agent
