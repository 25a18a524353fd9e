"""Where a host gets the agents of its runs: from plans of a project, or from a program."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from retinue.agent import Agent
from retinue.errors import NotFound, Refused
from retinue.formats.suggestion import did_you_mean
from retinue.host.builder import AgentBuilder
from retinue.host.mcp_pool import status_fields
from retinue.host.plan import Plan
from retinue.host.replies import AgentInfo, AgentList
from retinue.host.requests import PromptsRequest, StartRequest

if TYPE_CHECKING:
    from retinue.tools.mcp_client.server_content import ListedPrompt


@dataclass(frozen=True)
class FoundAgent:
    """The agent of a run, what the run is called, and the states of its MCP servers."""

    agent: Agent
    label: str
    mcp: tuple[dict[str, Any], ...] = ()


class AgentSource(Protocol):
    async def of_start(self, request: StartRequest) -> FoundAgent:
        """The agent of a new run. Raises `RetinueError`."""

    async def of_plan(self, plan: Plan) -> Agent:
        """The agent of a plan."""

    async def lead(self, name: str) -> Agent | None:
        """The agent with which the agent of this name is made known, for a run on record."""

    async def recall(self, name: str) -> Agent | None:
        """The agent of a run on record; None when it cannot be built."""

    async def definitions(self) -> AgentList:
        """The agents that can be started, and what is wrong with their files."""

    async def servers(
        self, plan: Plan, env: Mapping[str, str], approve: str, tool: str
    ) -> tuple[dict[str, Any], ...]:
        """The MCP servers of a plan; `approve` accepts what one of them offers."""

    async def prompts(self, plan: Plan, env: Mapping[str, str]) -> Sequence[ListedPrompt]:
        """The prompts of a plan's MCP servers."""

    async def prompt(self, request: PromptsRequest) -> str:
        """The text of one of them."""

    @property
    def environ(self) -> Mapping[str, str]:
        """What models are reached with."""


class Planner(Protocol):
    """Makes plans for those who name an agent and a model, from the files of a project."""

    def plan(
        self, agent: str, model: str, families: tuple[str, ...] | None
    ) -> tuple[Plan, dict[str, str]]: ...

    def definitions(self) -> AgentList: ...


class PlannedAgents:
    """Agents from plans: those that commands bring, and those that the host makes from the files of
    its project."""

    def __init__(self, builder: AgentBuilder, planner: Planner | None = None) -> None:
        self._builder, self._planner = builder, planner

    @property
    def environ(self) -> Mapping[str, str]:
        return self._builder.environ

    async def of_start(self, request: StartRequest) -> FoundAgent:
        plan, env = request.plan, request.env
        if plan is None:
            plan, env = await self._planned(request)
        agent = await self._builder.agent(plan, env)
        servers = await self._builder.pool.servers(plan, {})
        mcp = [status_fields(s) for s in servers.status()] if servers is not None else []
        mcp += await self._own_servers(plan, {})
        return FoundAgent(agent, plan.lead, tuple(mcp))

    async def _own_servers(self, plan: Plan, env: Mapping[str, str]) -> list[dict[str, Any]]:
        own = await self._builder.pool.own(plan, env)
        return [
            status_fields(status, name)
            for name, servers in own.items()
            for status in servers.status()
        ]

    async def _planned(self, request: StartRequest) -> tuple[Plan, dict[str, str]]:
        if self._planner is None:
            raise Refused("plan", "This host has no project. Send a plan with the request.")
        return await asyncio.to_thread(
            self._planner.plan, request.agent, request.model, request.families
        )

    async def of_plan(self, plan: Plan) -> Agent:
        return await self._builder.agent(plan)

    async def lead(self, name: str) -> Agent | None:
        return await self._builder.home(name)

    async def recall(self, name: str) -> Agent | None:
        return await self._builder.recall(name)

    async def definitions(self) -> AgentList:
        if self._planner is None:
            return AgentList(agents=())
        return await asyncio.to_thread(self._planner.definitions)

    async def servers(
        self, plan: Plan, env: Mapping[str, str], approve: str, tool: str
    ) -> tuple[dict[str, Any], ...]:
        pool = self._builder.pool
        servers, own = await pool.servers(plan, env), await pool.own(plan, env)
        agent, _, name = approve.rpartition("/")
        if approve and (owner := own.get(agent) if agent else servers) is not None:
            await owner.refresh()
            await owner.approve(name, tool)
        elif approve:
            raise NotFound(f"Unknown MCP server {approve!r}.")
        elif servers is not None:
            await servers.refresh()
        shared = [status_fields(s) for s in servers.status()] if servers is not None else []
        return (*shared, *await self._own_servers(plan, env))

    async def prompts(self, plan: Plan, env: Mapping[str, str]) -> Sequence[ListedPrompt]:
        servers = await self._builder.pool.servers(plan, env)
        return () if servers is None else await servers.prompts()

    async def prompt(self, request: PromptsRequest) -> str:
        servers = await self._builder.pool.servers(request.plan, request.env)
        if servers is None:
            raise NotFound(f"Unknown MCP server {request.server!r}.")
        return await servers.prompt(request.server, request.prompt, request.arguments)


@dataclass(frozen=True)
class GivenAgents:
    """Agents that a program has made itself, by their names."""

    agents: Sequence[Agent]
    environ: Mapping[str, str] = field(default_factory=dict)

    async def of_start(self, request: StartRequest) -> FoundAgent:
        if request.plan is not None or request.model or request.families is not None:
            raise Refused(
                "plan",
                "This service has its own agents: name one, without a plan, model or families.",
            )
        if not request.agent and self.agents:
            return FoundAgent(self.agents[0], self.agents[0].name)
        agent = await self.recall(request.agent)
        if agent is None:
            hint = did_you_mean(request.agent, [agent.name for agent in self.agents])
            raise NotFound(f"Agent {request.agent!r} not found.{hint}")
        return FoundAgent(agent, agent.name)

    async def of_plan(self, plan: Plan) -> Agent:
        raise Refused("plan", "This service has its own agents and takes no plans.")

    async def lead(self, name: str) -> Agent | None:
        return await self.recall(name)

    async def recall(self, name: str) -> Agent | None:
        return next((agent for agent in self.agents if agent.name == name), None)

    async def definitions(self) -> AgentList:
        agents = (
            AgentInfo(name=agent.name, model=agent.model if isinstance(agent.model, str) else None)
            for agent in self.agents
        )
        return AgentList(agents=tuple(agents))

    async def servers(
        self, plan: Plan, env: Mapping[str, str], approve: str, tool: str
    ) -> tuple[dict[str, Any], ...]:
        raise Refused("plan", "This service has its own agents and takes no plans.")

    async def prompts(self, plan: Plan, env: Mapping[str, str]) -> Sequence[ListedPrompt]:
        raise Refused("plan", "This service has its own agents and takes no plans.")

    async def prompt(self, request: PromptsRequest) -> str:
        raise Refused("plan", "This service has its own agents and takes no plans.")
