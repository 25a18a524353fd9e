"""Agents as a program writes them, and as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import msgspec

from retinue.core.values import Budget, Definition, ModelInfo, Permissions, ToolRisk
from retinue.errors import ConfigError
from retinue.models.base import Model
from retinue.tools.base import Risk, Tool
from retinue.tools.builtin.ask import AskTool
from retinue.tools.families.base import Family, FamilyTool, helper_name
from retinue.tools.families.profiles import check_once, check_switches, family
from retinue.tools.function import FunctionTool
from retinue.tools.submit import ERROR, RESULT, SubmitError, SubmitResult


@dataclass(frozen=True, eq=False)
class Agent:
    """A definition: instructions, a model, tools. It never runs itself; `Retinue.run` makes a run
    of it.

    `staff` are the agents that its runs may start; only their tools can be given to children.
    `output` is a type (or a JSON schema) that results must match: the child is asked again until
    they do. `families` give it tools to start children that are defined on the spot: they work with
    its own tools. `options` are defaults for any field of a `RunRequest`. A name among the `tools`
    is that of a built-in one."""

    name: str
    instructions: str = ""
    model: Model | str = ""
    tools: Sequence[Tool | Callable[..., Any] | str] = ()
    staff: Sequence[Agent] = ()
    families: Sequence[Family | str] = ()
    output: Any = None
    budget: Budget = field(default=Budget())
    max_turns: int | None = None
    timeout_seconds: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ConfigError("An agent needs a name.")
        check_once(f"agent {self.name!r}", self.families)

    @property
    def own_tools(self) -> tuple[Tool, ...]:
        """Its tools, as far as they are known without a runtime."""
        return self.equip(_not_here)

    def equip(self, builtin: Callable[[str], Tool]) -> tuple[Tool, ...]:
        """Functions are made tools, names are looked up; an agent with an output type gets the
        tools to hand it in."""
        out: list[Tool] = [builtin(t) if isinstance(t, str) else _as_tool(t) for t in self.tools]
        out += [t for f in self.family_list for t in f.tools()]
        if self.output is not None or self.options.get("report") == "submit":
            out += [SubmitResult(str if self.output is None else self.output), SubmitError()]
        return tuple(out)

    @cached_property
    def family_list(self) -> tuple[Family, ...]:
        """Its families; a name means the family with the settings of that profile."""
        return tuple(family(f) if isinstance(f, str) else f for f in self.families)

    @cached_property
    def helpers(self) -> tuple[Agent, ...]:
        """The sub-agents of its families: agents with its other tools, on the model of the run that
        starts them."""
        return tuple(
            Agent(
                helper_name(self.name, f.name),
                self.instructions,
                tools=(*self._lent(f), *f.helper_tools()),
            )
            for f in self.family_list
        )

    def _lent(self, dialect: Family) -> list[Tool | Callable[..., Any] | str]:
        """Its own tools as a family's children have them: without `ask`, unless the setting gives
        that too."""
        if dialect.settings.lend_ask:
            return list(self.tools)
        return [t for t in self.tools if t != AskTool.name and not isinstance(t, AskTool)]

    def full_instructions(self, switches: Mapping[str, bool]) -> str:
        """Its instructions, with the guides of the families that are on."""
        guides = [
            f.guide
            for f in self.family_list
            if f.settings.guide and switches.get(f.name, f.settings.enabled)
        ]
        return "\n\n".join(part for part in (self.instructions, *guides) if part)

    def withheld_tools(self, switches: Mapping[str, bool]) -> tuple[str, ...]:
        """The tools of the families that are off."""
        check_switches(f"agent {self.name!r}", self.family_list, switches)
        off = [f for f in self.family_list if not switches.get(f.name, f.settings.enabled)]
        return tuple(sorted({name for f in off for name in f.tool_names}))

    @property
    def request_defaults(self) -> dict[str, Any]:
        out: dict[str, Any] = {"budget": self.budget}
        if self.max_turns is not None:
            out["max_turns"] = self.max_turns
        if self.timeout_seconds is not None:
            out["timeout_ms"] = round(self.timeout_seconds * 1000)
        if self.output is not None:
            out["report"] = "submit"
            out["must_submit"] = True
        return {**out, **self.options}

    def request_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Its defaults with the options of one request. `families` turns families on or off: a dict
        of names."""
        out = {**self.request_defaults, **options}
        switches = out.pop("families", {})
        if off := self.withheld_tools(switches):
            access = out.get("permissions", Permissions())
            out["permissions"] = msgspec.structs.replace(
                access, deny=tuple(sorted({*access.deny, *off}))
            )
        if switches:
            out.setdefault("instructions", self.full_instructions(switches))
        return out

    @property
    def model_name(self) -> str:
        """A model without a name of its own is named after its agent."""
        return (
            self.model
            if isinstance(self.model, str)
            else self.model.info.name or f"{self.name}'s model"
        )

    @property
    def model_info(self) -> ModelInfo | None:
        if isinstance(self.model, str):
            return None
        return msgspec.structs.replace(self.model.info, name=self.model_name)

    def reachable_agents(self) -> Iterator[Agent]:
        """This agent and all agents below it, each once."""
        agents: dict[str, Agent] = {}
        todo = [self]
        while todo:
            agent = todo.pop()
            known = agents.get(agent.name)
            if known is agent:
                continue
            if known is not None:
                raise ConfigError(f"Two different agents are named {agent.name!r}. Rename one.")
            agents[agent.name] = agent
            todo.extend(agent.staff)
            todo.extend(agent.helpers)
        yield from agents.values()


def _as_tool(thing: Tool | Callable[..., Any]) -> Tool:
    if hasattr(thing, "schema") and hasattr(thing, "run"):
        return cast(Tool, thing)
    if callable(thing):
        return FunctionTool(thing)
    raise ConfigError(f"{thing!r} is neither a tool nor a function.")


def _not_here(name: str) -> Tool:
    raise ConfigError(
        f"The built-in tool {name!r} is created by a runtime. Register the agent there."
    )


def guard_of(tool: Tool) -> ToolRisk:
    """What permissions have to know of a tool."""
    if isinstance(tool, FamilyTool):
        return ToolRisk(risk="spawn")
    risk: Risk = getattr(tool, "risk", "execute")
    guarded = bool(getattr(tool, "guarded", False)) and risk != "read"
    changes = bool(getattr(tool, "changes_files", guarded and risk == "write"))
    return ToolRisk(
        risk=risk, subject=getattr(tool, "subject", ""), guarded=guarded, changes_files=changes
    )


def define(agent: Agent, tools: Mapping[str, Sequence[Tool]]) -> Definition:
    """What is stored of an agent. `tools` are those of all reachable agents, by name."""
    reachable = sorted(a.name for a in agent.reachable_agents())
    own = tools[agent.name]
    names = {t.schema.name for t in own}
    instructions = agent.full_instructions({})
    return Definition(
        name=agent.name,
        instructions=instructions,
        model=agent.model_name,
        tools=tuple(sorted(names)),
        submit_tools=tuple(n for n in (RESULT, ERROR) if n in names),
        reachable_tools=tuple(sorted({t.schema.name for name in reachable for t in tools[name]})),
        agents=tuple(reachable),
        prompt_bytes=len(instructions.encode()) + len(msgspec.json.encode([t.schema for t in own])),
        notices={t.schema.name: words for t in own if (words := getattr(t, "notices", None))},
        tool_risks={t.schema.name: guard for t in own if (guard := guard_of(t)) != ToolRisk()},
    )
