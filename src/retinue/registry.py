"""The agents and models that a runtime knows: names become tools and models, and options become
requests."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from retinue.agent import Agent, define
from retinue.config import environment_catalog
from retinue.core.spawn import check_rules
from retinue.core.spec import RunRequest
from retinue.core.values import checked
from retinue.errors import ConfigError, NotFound, Refused
from retinue.models.base import Model, ModelCatalog
from retinue.runtime.engine import Engine
from retinue.runtime.secret_filter import learn_from
from retinue.sandbox.open_directories import real_paths
from retinue.tools.base import Tool
from retinue.tools.builtin.builtin_tools import BuiltinTools
from retinue.tools.toolbox import Toolbox


class Registry:
    """The registered agents and models. The engine uses the same `models` and toolbox. `home` is
    the default working directory of runs, without links."""

    def __init__(
        self,
        engine: Engine,
        toolbox: Toolbox,
        builtin_tools: BuiltinTools,
        models: dict[str, Model],
        catalog: ModelCatalog | None,
        home: str,
    ) -> None:
        self._engine = engine
        self._toolbox = toolbox
        self._builtin_tools = builtin_tools
        self._home = home
        self.models, self.catalog = models, catalog
        self.agents: dict[str, Agent] = {}
        self.preview = toolbox.preview
        engine.performer.window.know_model = self.know_model
        self.learn_keys()

    def __contains__(self, agent: Agent) -> bool:
        return self.agents.get(agent.name) is agent

    def register(self, agent: Agent) -> None:
        agents = list(agent.reachable_agents())
        tools = {a.name: self._equip(a) for a in agents}
        models = dict(self.models)
        for member in agents:
            if self.agents.get(member.name, member) is not member:
                raise ConfigError(f"Two different agents are named {member.name!r}. Rename one.")
            if (
                not isinstance(member.model, str)
                and models.setdefault(member.model_name, member.model) is not member.model
            ):
                raise ConfigError(
                    f"Two different models are named {member.model_name!r}. Rename one."
                )
        boxes = Toolbox()
        for member in agents:
            boxes.add(member.name, tools[member.name])
        self.models.update(models)
        learn_from(
            self._engine.redactor, *models.values(), *(t for own in tools.values() for t in own)
        )
        for member in agents:
            self._toolbox.add(member.name, tools[member.name], member.request_defaults)
            self.agents[member.name] = member
            if isinstance(member.model, str):
                self.know_model(member.model)
            self._engine.register(define(member, tools), member.model_info)

    def learn_keys(self) -> None:
        """The catalog's, which may have been given others meanwhile, are never written down."""
        learn_from(self._engine.redactor, self.catalog)

    def know_model(self, name: str) -> None:
        """A model that is given by its name alone is looked up in the catalog."""
        catalog = self.catalog
        is_named = ":" in name or "/" in name or (catalog is not None and catalog.knows(name))
        if name not in self.models and is_named:
            self.catalog = catalog = catalog or environment_catalog()
            self.learn_keys()
            self.models[name] = model = catalog.find(name)
            learn_from(self._engine.redactor, model)
            self._engine.describe(replace(model.info, name=name, resolved=catalog.resolve(name)))

    def know_models(self) -> None:
        """The models of open runs that were asked for by name alone; one without a key keeps its
        runs waiting."""
        for spec, _ in list(self._engine.trees.live()):
            if spec.request.agent in self.agents:
                with contextlib.suppress(ConfigError):
                    self.know_model(spec.model)

    def _equip(self, agent: Agent) -> Sequence[Tool]:
        own = agent.equip(self._builtin_tools.tool)
        if not own or any(t.schema.name == "artifact" for t in own):
            return own
        return (*own, self._builtin_tools.tool("artifact"))

    def request(self, agent: Agent, task: str, options: dict[str, Any]) -> RunRequest:
        self.learn_keys()
        options = agent.request_options(options)
        self.know_model(options.get("model", ""))
        cwd = options.get("cwd")
        options["cwd"] = os.path.realpath(os.path.join(self._home, cwd)) if cwd else self._home
        if (seconds := options.pop("timeout_seconds", None)) is not None:
            options["timeout_ms"] = round(seconds * 1000)
        try:
            order = checked(RunRequest(agent=agent.name, task=task, **options))
            check_rules(order.permissions)
            return replace(order, permissions=real_paths(order.permissions))
        except Refused as error:
            raise ConfigError(f"Invalid run option: {error}") from None
        except TypeError as error:
            known = ", ".join(RunRequest.__struct_fields__)
            raise ConfigError(f"{error}. Options of a run: {known}") from None
        except ValueError as error:
            raise ConfigError(f"Invalid run option: {error}") from None

    def find(self, name: str) -> Agent:
        agent = self.agents.get(name)
        if agent is None:
            raise NotFound(f"Unknown agent {name!r}. Register it first.")
        return agent
