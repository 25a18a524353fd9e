"""Builds agents from plans, each once. A plan is written next to the store before its first run is
started, so that the next process that opens the store can build the same agents again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from retinue.agent import Agent
from retinue.agent_files.agent_spec import AgentSpec, FoundAgents
from retinue.agent_files.conversion import to_agents
from retinue.agent_files.start_agent_tool import StaffArgs, StartAgentTool
from retinue.core.capabilities import narrow
from retinue.core.spec import InstructionFile
from retinue.core.values import Permissions
from retinue.errors import ConfigError
from retinue.host.keys import KeyedCatalog
from retinue.host.mcp_pool import McpPool
from retinue.host.plan import Plan
from retinue.host.project_paths import private_directory
from retinue.runtime.secret_filter import clean_value
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.regular_file import read_small
from retinue.tools.base import Context, Returned
from retinue.tools.families.profiles import make_family, settings_of

MOST_BYTES = 64 << 20
_STAMP = re.compile(r"-([0-9a-f]{8})(?=\.|$)")


class ServerTools(NamedTuple):
    """The tools of MCP servers by name: those that all agents can have, and those that each agent
    has for itself."""

    shared: Mapping[str, Any]
    own: Mapping[str, Mapping[str, Any]]

    @property
    def digest(self) -> str:
        """The same for the same tools, "" for none."""
        schemas: list[Any] = [self.shared[name].schema for name in sorted(self.shared)]
        schemas += [
            (agent, tools[name].schema) for agent, tools in self.own.items() for name in tools
        ]
        return hashlib.sha256(msgspec.json.encode(schemas)).hexdigest()[:8] if schemas else ""


class Staff(StartAgentTool):
    """Agents by the names that their files give them, started by those that they have in the
    store."""

    def __init__(self, staff: Mapping[str, AgentSpec], stamp: str) -> None:
        super().__init__(staff)
        self._stamp = stamp

    async def call(self, context: Context, args: StaffArgs) -> Returned:
        spec = self.staff.get(args.name)
        if spec is None or not args.task.strip():
            return await super().call(context, args)
        name = f"{args.name}-{self._stamp}"
        if not spec.background:
            return context.spawn_actions(name, args.task, label=args.name)
        answer = (
            f"{args.name} is running in the background as {context.child_id()}. You will "
            "be notified when it ends."
        )
        return context.spawn_actions(name, args.task, label=args.name, answer=answer, join="none")


class AgentBuilder:
    """The agents of a host. `folder` is where plans are kept; "" keeps them in memory. `offered`
    are models that plans have beside those of their agents; `learn` tells the runtime of one.
    `share` and `fetch` give plans to other nodes, and get theirs."""

    def __init__(self, folder: str, models: KeyedCatalog, pool: McpPool | None = None) -> None:
        self._folder, self._models = folder, models
        self.pool = pool or McpPool(None)
        self._agents: dict[str, Agent] = {}
        self.offered: dict[str, None] = {}
        self.learn: Callable[[str], None] = lambda model: None
        self.share: Callable[[str, bytes], None] = lambda stamp, plan: None
        self.fetch: Callable[[str], bytes | None] = lambda stamp: None

    @property
    def environ(self) -> Mapping[str, str]:
        """What models are reached with."""
        return self._models.environ()

    async def agent(self, plan: Plan, env: Mapping[str, str] | None = None) -> Agent:
        """The agent of a plan. The same plan gives the same agent, unless its servers offer
        something else by now. `env` are the values of the variables that the servers name."""
        tools = await self._server_tools(plan, env or {})
        plan = self._clean(plan)
        plan = replace(plan, variant=tools.digest) if tools.digest else plan
        return self._made(plan, tools)

    async def _server_tools(self, plan: Plan, env: Mapping[str, str]) -> ServerTools:
        return ServerTools(await self.pool.tools(plan, env), await self.pool.own_tools(plan, env))

    async def home(self, agent_name: str) -> Agent | None:
        """The lead of the plan to which an agent belongs whose run is on record; None when its plan
        is not here."""
        stamps = _STAMP.findall(agent_name)
        if not stamps:
            return None
        if stamps[-1] in self._agents:
            return self._agents[stamps[-1]]
        plan = self._read(stamps[-1])
        return None if plan is None else self._made(plan, await self._server_tools(plan, {}))

    async def recall(self, agent_name: str) -> Agent | None:
        """The agent whose run, or whose sub-agent's run, is on record; None when its plan is not
        here."""
        lead = await self.home(agent_name)
        return (
            None
            if lead is None
            else next((a for a in lead.reachable_agents() if a.name == agent_name), lead)
        )

    def _made(self, plan: Plan, tools: ServerTools) -> Agent:
        if plan.stamp not in self._agents:
            agent = self._build(plan, tools)
            for model in plan.offered:
                self.learn(model)
                self.offered[model] = None
            self._keep(plan)
            self._agents[plan.stamp] = agent
        return self._agents[plan.stamp]

    def _build(self, plan: Plan, tools: ServerTools) -> Agent:
        """The lead of a plan with its staff. In the store each has the plan's stamp behind its
        name."""
        library = FoundAgents(agents={spec.name: spec for spec in plan.specs})
        families = tuple(
            make_family(f, **{"writers": plan.writers, **plan.settings.get(settings_of(f)[0], {})})
            for f in plan.families
        )
        agents = to_agents(
            library,
            default_model=self._model(plan.model),
            families=families,
            lead=plan.lead,
            models=lambda name: self._model(plan.models[name]) if plan.models.get(name) else None,
            tools=tools.shared,
            own_tools=tools.own,
            skills={skill.name: skill for skill in plan.skills},
            files=plan.files,
            writers=plan.writers,
        )
        loaded = tuple(
            InstructionFile(path=f.path, sha256=f.sha256, bytes=f.bytes, tokens=f.tokens_estimate)
            for f in plan.files
            if f.text
        )
        staffs: dict[str, list[Agent]] = {name: [] for name in agents}
        named = {
            name: changed(
                agent,
                name=f"{name}-{plan.stamp}",
                staff=staffs[name],
                tools=[
                    Staff(t.staff, plan.stamp) if isinstance(t, StartAgentTool) else t
                    for t in agent.tools
                    if plan.has(_tool_name(t))
                ],
                options={**agent.options, "instruction_files": loaded} if loaded else agent.options,
            )
            for name, agent in agents.items()
        }
        lead = named[plan.lead]
        # Whatever runs is below the lead and has no more than it.
        access = narrow(lead.options.get("permissions", Permissions()), _access(plan, families))
        named[plan.lead] = changed(lead, options={**lead.options, "permissions": access})
        for name, agent in agents.items():
            staffs[name].extend(named[other.name] for other in agent.staff)
        return named[plan.lead]

    def _model(self, name: str) -> Any:
        """Names with a colon are looked up by the runtime itself; of the others it wants to see the
        model."""
        return name if not name or ":" in name else self._models.find(name)

    def _clean(self, plan: Plan) -> Plan:
        """Without the secrets in instructions and in quoted files. Those of servers were taken out
        by the command, for they are needed."""
        bare = replace(plan, servers=(), own_servers={})
        return replace(
            clean_value(self._models.redactor, bare),
            servers=plan.servers,
            own_servers=plan.own_servers,
        )

    def _keep(self, plan: Plan) -> None:
        if not self._folder:
            return
        private_directory(self._folder)
        path, data = self._path(plan.stamp), msgspec.json.encode(plan)
        self.share(plan.stamp, data)
        with contextlib.suppress(OSError):
            if read_small(path, MOST_BYTES) == data:
                return
        write_file(path, data)

    def _read(self, stamp: str) -> Plan | None:
        if not self._folder:
            return None
        path = self._path(stamp)
        try:
            data = read_small(path, MOST_BYTES) if os.path.exists(path) else self.fetch(stamp)
            if data is None:
                return None
            plan = msgspec.json.decode(data, type=Plan)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"Cannot read the plan {path} ({error}). Its runs are kept. Restore the "
                "file, or start a new run."
            ) from None
        if plan.stamp != stamp:
            raise ConfigError(
                f"The plan {path} was changed by hand. Its runs are kept. Restore the file."
            )
        return plan

    def _path(self, stamp: str) -> str:
        return os.path.join(self._folder, f"{stamp}.json")


def _tool_name(tool: Any) -> str:
    return tool if isinstance(tool, str) else str(tool.schema.name)


def _access(plan: Plan, families: Sequence[Any]) -> Permissions:
    """What the plan withholds is denied by name as well: the tools of families are no one's own."""
    off = {name for f in families for name in f.tool_names if not plan.has(name)}
    off |= {name for name in plan.never if "*" not in name}
    return replace(plan.access, deny=tuple(sorted({*plan.access.deny, *off})))
