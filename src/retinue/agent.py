"""Agents as a program writes them, and as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Unpack

import msgspec

from retinue.core.model_settings import NO_SETTINGS, ModelSettings
from retinue.core.type_parameters import D_contra, T_co
from retinue.core.values import Budget, Definition, ModelInfo, Permissions, ToolRisk
from retinue.errors import ConfigError
from retinue.models.base import Model
from retinue.option_types import AgentOptions, check_run_options
from retinue.tools.base import Risk, Tool
from retinue.tools.builtin.ask import AskTool
from retinue.tools.families.base import Family, FamilyTool, helper_name
from retinue.tools.families.profiles import check_once, check_switches, make_family
from retinue.tools.option_values import check_values, shown
from retinue.tools.output_type import Output, check_output
from retinue.tools.own_tools import InvokedTool, Toolset, is_tool, is_toolset, machine_tool
from retinue.tools.start_options import Seconds, check_known, request_fields
from retinue.tools.submit import ERROR, RESULT, SubmitError, SubmitResult


class AgentParts(AgentOptions, total=False):
    """What is checked when an agent is made."""

    instructions: str
    staff: Sequence[Agent[Any, Any]] | None


AGENT_OPTIONS = ("output", "deps_type", "tools", "staff", *AgentOptions.__annotations__)


@dataclass(frozen=True, eq=False, init=False)
class Agent(Generic[T_co, D_contra]):
    """Defines an agent: instructions, a model, tools. `Retinue.run` starts a run of it.

    `output` is the type of its result, `one_of(A, B)` or `json_schema({...})`; the model is asked
    again for a result that does not fit. Without one, the result is text. `deps_type` is the type
    of `Retinue(deps=...)` that its tools need. A name among the `tools` is that of a built-in one.
    `staff` are the agents that its runs may start; only their tools can be given to children.
    `families` give it tools to start children that are defined on the spot: they work with its own
    tools. `settings` say how its model is asked. `options` are defaults for the options of its
    runs."""

    name: str
    instructions: str
    output: type[T_co] | Output[T_co] | None
    deps_type: type[Any] | None
    tools: Sequence[InvokedTool[D_contra] | Tool[D_contra] | Toolset[D_contra] | str]
    staff: Sequence[Agent[Any, D_contra]]
    model: Model | str
    families: Sequence[Family | str]
    budget: Budget
    max_turns: int | None
    timeout: Seconds | None
    options: Mapping[str, Any]
    settings: ModelSettings

    def __init__(
        self,
        name: str,
        instructions: str = "",
        *,
        output: type[T_co] | Output[T_co] | None = None,
        deps_type: type[D_contra] | None = None,
        tools: Sequence[InvokedTool[D_contra] | Tool[D_contra] | Toolset[D_contra] | str]
        | None = None,
        staff: Sequence[Agent[Any, D_contra]] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"An agent needs a name, not {name!r}.")
        owner = f"Agent {name!r}"
        check_known(owner, options, AGENT_OPTIONS)
        own = {"instructions": instructions, "staff": staff, **options}
        for checked_below in ("families", "model"):
            own.pop(checked_below, None)
        is_list = isinstance(tools, Collection) and not isinstance(tools, (str, bytes, Mapping))
        if tools is not None and not is_list:
            raise ConfigError(f"{owner}: tools is a list of tools and names, not {shown(tools)}.")
        check_values(owner, own, AgentParts)
        check_model(owner, options.get("model", ""))
        check_output(owner, output)
        request_fields({name: options.get(name) for name in ("timeout", "max_turns")})
        check_run_options(f"{owner}: options=", options.get("options", {}))
        fields: dict[str, Any] = {
            "model": "",
            "families": (),
            "budget": Budget(),
            "options": {},
            "settings": NO_SETTINGS,
            "max_turns": None,
            "timeout": None,
            **options,
            "name": name,
            "instructions": instructions,
            "output": output,
            "deps_type": deps_type,
            "tools": () if tools is None else tools,
            "staff": () if staff is None else staff,
        }
        self.__dict__.update(fields)
        for thing in self.tools:
            check_tool(owner, thing)
        check_once(f"agent {name!r}", self.families)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            """`Agent[Report]` is an agent of any dependencies; before Python 3.13 type variables
            have no defaults of their own."""
            both = parameters if isinstance(parameters, tuple) else (parameters, object)
            return super().__class_getitem__(both)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same definition: a service that makes its agents anew for each
        request has the same agents each time."""
        if not isinstance(other, Agent):
            return NotImplemented
        if self is other:
            return True
        mine, theirs = self._with_staff(), other._with_staff()
        return [a._parts for a in mine] == [a._parts for a in theirs]

    def __hash__(self) -> int:
        return hash(self.name)

    def _with_staff(self) -> list[Agent[Any, Any]]:
        """This agent and its staff, and theirs: each object once, for one may be on its own."""
        agents: dict[int, Agent[Any, Any]] = {}
        todo: list[Agent[Any, Any]] = [self]
        while todo:
            agent = todo.pop()
            agents[id(agent)] = agent
            todo.extend(a for a in agent.staff if id(a) not in agents)
        return list(agents.values())

    @property
    def _parts(self) -> list[Any]:
        own = [_comparable(getattr(self, f.name)) for f in fields(self) if f.name != "staff"]
        return [*own, [agent.name for agent in self.staff]]

    def replace(
        self, *, instructions: str | None = None, **changes: Unpack[AgentOptions]
    ) -> Agent[T_co, D_contra]:
        """The same agent with something changed, for instance another model."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        if instructions is not None:
            own["instructions"] = instructions
        return Agent(**{**own, **changes})

    @property
    def own_tools(self) -> tuple[Tool[Any], ...]:
        """Its tools, as far as they are known without a runtime."""
        return self.equip(_not_here)

    def equip(
        self,
        builtin: Callable[[str], Tool[Any]],
        opened: Callable[[Toolset[Any]], Sequence[Tool[Any]]] | None = None,
    ) -> tuple[Tool[Any], ...]:
        """Its tools, with names looked up and sets as they were opened; an agent with an output
        type gets the tools to hand it in."""
        out: list[Tool[Any]] = []
        for thing in self.tools:
            if isinstance(thing, str):
                out.append(builtin(thing))
            elif is_toolset(thing):
                out += opened(thing) if opened is not None else ()
            else:
                out.append(machine_tool(thing))
        out += [t for f in self.family_list for t in f.tools()]
        if self.output is not None or self.options.get("report") == "submit":
            out += [SubmitResult(str if self.output is None else self.output), SubmitError()]
        return tuple(out)

    @cached_property
    def family_list(self) -> tuple[Family, ...]:
        """Its families; a name means the family with the settings of that profile."""
        return tuple(make_family(f) if isinstance(f, str) else f for f in self.families)

    @cached_property
    def helpers(self) -> tuple[Agent[str, D_contra], ...]:
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

    def _lent(
        self, dialect: Family
    ) -> list[InvokedTool[D_contra] | Tool[D_contra] | Toolset[D_contra] | str]:
        """Its own tools as a family's children have them: without `ask`, unless the setting gives
        that too, and without those whose `is_lent` is False."""
        own = [t for t in self.tools if getattr(t, "is_lent", True)]
        if dialect.settings.lend_ask:
            return own
        return [t for t in own if t != AskTool.name and not isinstance(t, AskTool)]

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
        if self.timeout is not None:
            out["timeout"] = self.timeout
        if self.output is not None:
            out["report"] = "submit"
            out["must_submit"] = True
        if self.settings != NO_SETTINGS:
            out["settings"] = self.settings
        return request_fields({**out, **self.options})

    def request_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Its defaults with the options of one request. `families` turns families on or off: a dict
        of names."""
        out = {**self.request_defaults, **request_fields(options)}
        if "settings" in options and self.settings != NO_SETTINGS:
            out["settings"] = options["settings"].over(self.settings)
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

    def reachable_agents(self) -> Iterator[Agent[Any, Any]]:
        """This agent and all agents below it, each once."""
        agents: dict[str, Agent[Any, Any]] = {}
        todo: list[Agent[Any, Any]] = [self]
        while todo:
            agent = todo.pop()
            registered = agents.get(agent.name)
            if registered == agent:
                continue
            if registered is not None:
                raise ConfigError(f"Two different agents are named {agent.name!r}. Rename one.")
            agents[agent.name] = agent
            todo.extend(agent.staff)
            todo.extend(agent.helpers)
        yield from agents.values()


def _comparable(value: Any) -> Any:
    """A field as it is compared: sequences by what is in them, tools of functions by these."""
    if isinstance(value, (list, tuple)):
        return [getattr(item, "same_as", item) for item in value]
    return value


def check_tool(owner: str, thing: object) -> None:
    """Refuses anything but a tool; a plain function gets the words that make it one."""
    if isinstance(thing, str) or is_tool(thing) or is_toolset(thing):
        return
    name = getattr(thing, "__name__", "")
    if callable(thing) and name:
        raise ConfigError(
            f"{owner}: {name} is a plain function. Write tools=[tool({name})], or put @tool above "
            "it."
        )
    raise ConfigError(f"{owner}: {thing!r} is neither a tool nor the name of one.")


def check_model(owner: str, model: object) -> None:
    """A name, or an object with the method of a model."""
    is_object = not isinstance(model, type) and callable(getattr(model, "complete", None))
    if not isinstance(model, str) and not is_object:
        raise ConfigError(
            f"{owner}: model is a name such as 'anthropic:claude-haiku-4-5', or a Model, not "
            f"{shown(model)}.",
            field="model",
        )


def _not_here(name: str) -> Tool[Any]:
    raise ConfigError(
        f"The built-in tool {name!r} is created by a runtime. Register the agent there."
    )


def guard_of(tool: Tool[Any]) -> ToolRisk:
    """What permissions have to know of a tool."""
    if isinstance(tool, FamilyTool):
        return ToolRisk(risk="spawn")
    risk: Risk = getattr(tool, "risk", "execute")
    guarded = bool(getattr(tool, "guarded", False)) and risk != "read"
    changes = bool(getattr(tool, "changes_files", guarded and risk == "write"))
    return ToolRisk(
        risk=risk, subject=getattr(tool, "subject", ""), guarded=guarded, changes_files=changes
    )


def define(agent: Agent[Any, Any], tools: Mapping[str, Sequence[Tool[Any]]]) -> Definition:
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
