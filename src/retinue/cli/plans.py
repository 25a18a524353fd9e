"""Plans become agents, each once. A plan is written beside the store before its first run is started, so that whoever
takes the store over can build the same agents again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from retinue.cli.lending import Lender
from retinue.cli.places import private_directory, write_private
from retinue.cli.plan import AgentPlan, Plan
from retinue.definitions import Agent
from retinue.errors import ConfigError
from retinue.tools.families.profiles import family


class Plans:
    """The agents of a host. `folder` is where plans are kept; "" keeps them in memory."""

    def __init__(self, folder: str, models: Lender) -> None:
        self._folder, self._models = folder, models
        self._agents: dict[str, Agent] = {}

    def agent(self, plan: Plan) -> Agent:
        """The agent of a plan. The same plan gives the same agent."""
        name = plan.agent_name
        if name not in self._agents:
            made = self._build(plan.agent, plan, name)
            self._keep(plan)
            self._agents[name] = made
        return self._agents[name]

    def recall(self, agent_name: str) -> Agent | None:
        """The agent whose run, or whose helper's run, is on record; None when its plan is not here."""
        for name in _homes(agent_name):
            if name in self._agents:
                return self._agents[name]
            plan = self._read(name)
            if plan is not None:
                return self.agent(plan)
        return None

    def _build(self, agent: AgentPlan, plan: Plan, name: str) -> Agent:
        return Agent(
            name,
            agent.instructions,
            model=self._model(agent.model),
            tools=agent.tools,
            families=tuple(family(f, **plan.settings.get(f, {})) for f in agent.families),
            staff=[self._build(member, plan, f"{member.name}-{plan.stamp}") for member in agent.staff],
            output=agent.output,
            max_turns=agent.max_turns,
            timeout_seconds=agent.timeout_seconds,
            options=agent.options,
        )

    def _model(self, name: str) -> Any:
        """Names with a colon are looked up by the runtime itself; of the others it wants to see the model."""
        return name if not name or ":" in name else self._models.find(name)

    def _keep(self, plan: Plan) -> None:
        if self._folder:
            private_directory(self._folder)
            path = self._path(plan.agent_name)
            if not os.path.exists(path):
                write_private(path, msgspec.json.encode(plan).decode())

    def _read(self, name: str) -> Plan | None:
        if not self._folder:
            return None
        try:
            with open(self._path(name), "rb") as file:
                plan = msgspec.json.decode(file.read(), type=Plan)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{self._path(name)} cannot be read ({error}). Its runs stay as they are.") from None
        return plan if plan.agent_name == name else None

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, f"{name.replace(os.sep, '_')}.json")


def _homes(agent_name: str) -> Iterator[str]:
    """The name itself, then without the families behind it: a helper is built by the plan of its agent."""
    yield agent_name
    while "." in agent_name:
        agent_name = agent_name.rpartition(".")[0]
        yield agent_name
