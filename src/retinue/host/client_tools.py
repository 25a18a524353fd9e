"""Tools that run in the client. A call of one waits as an open question until the client answers
it; the schemas are kept with the run, so that the next process knows the same agent."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from retinue.agent import Agent
from retinue.core.state import RunRecord, calls_of
from retinue.core.values import Permissions, Restart, ToolSchema
from retinue.errors import ConfigError
from retinue.tools.base import Ask, Context, Returned, Risk
from retinue.tools.own_tools import is_toolset, machine_tool

META = "retinue.client_tools"
"""Under this name the schemas are kept with a run."""
MOST_TOOLS = 128
MOST_BYTES = 256 << 10
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CALL = re.compile(r"call_([0-9A-Za-z-]+)_[0-9]+_[0-9]+")
_MARK = re.compile(r"\+[0-9a-f]{8}(?=\.|$)")


@dataclass
class ClientSideTool:
    """Its call is answered from outside, with what the client found. Sub-agents do not get it: the
    client talks with the agent that it has started."""

    schema: ToolSchema
    restart: Restart = "pure"
    risk: Risk = "read"
    is_lent: bool = False

    async def run(self, context: Context[Any], args: dict[str, Any]) -> Returned:
        return Ask(question=f"The client has to carry out {self.schema.name}.")

    def format_results(self, outcomes: Sequence[Any]) -> str:
        raise NotImplementedError(f"{self.schema.name} starts no children")


def with_client_tools(agent: Agent[Any, Any], tools: Sequence[ToolSchema]) -> Agent[Any, Any]:
    """The same agent with the client's tools beside its own, under a name that says which they
    are. Raises `ConfigError`."""
    if not tools:
        return agent
    encoded = _check(agent, tools)
    stamp = hashlib.sha256(encoded).hexdigest()[:8]
    own = agent.options.get("permissions", Permissions())
    options = dict(agent.options)
    if own.tools is not None:
        names = sorted({*own.tools, *(tool.name for tool in tools)})
        options["permissions"] = msgspec.structs.replace(own, tools=tuple(names))
    return replace(
        agent,
        name=f"{agent.name}+{stamp}",
        tools=(*agent.tools, *(ClientSideTool(tool) for tool in tools)),
        options=options,
    )


def _check(agent: Agent[Any, Any], tools: Sequence[ToolSchema]) -> bytes:
    encoded = msgspec.json.encode(tools, order="sorted")
    if len(tools) > MOST_TOOLS or len(encoded) > MOST_BYTES:
        raise ConfigError(
            f"Too many tools: a run takes {MOST_TOOLS} of a client, and {MOST_BYTES >> 10} KiB of "
            "schemas. Nothing was started."
        )
    names_in_use = {
        own if isinstance(own, str) else machine_tool(own).schema.name
        for own in agent.tools
        if not is_toolset(own)
    }
    names_in_use |= {name for family in agent.family_list for name in family.tool_names}
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            raise ConfigError(
                f"{tool.name[:80]!r} cannot be the name of a tool: use letters, digits, _ and -."
            )
        if tool.name in names_in_use:
            raise ConfigError(
                f"Agent {agent.name!r} already has a tool {tool.name!r}. Rename yours."
            )
        if tool.parameters and tool.parameters.get("type", "object") != "object":
            raise ConfigError(f"Tool {tool.name!r}: the type of its parameters must be object.")
        names_in_use.add(tool.name)
    return encoded


def kept(tools: Sequence[ToolSchema]) -> dict[str, str]:
    """The schemas as they are kept with a run."""
    return {META: msgspec.json.encode(tools).decode()}


def tools_of(meta: Mapping[str, str]) -> tuple[ToolSchema, ...]:
    """The client's tools of a run; none when there are none."""
    text = meta.get(META, "")
    return msgspec.json.decode(text, type=tuple[ToolSchema, ...]) if text else ()


def call_id(run: str, message: int, index: int) -> str:
    """The id of a call for the client: the run, the number of the message, the place in it."""
    return f"call_{run}_{message}_{index}"


def run_of_call(id: str) -> str:
    """The run that has made a call, "" if this is not an id of ours."""
    match = _CALL.fullmatch(id)
    return "" if match is None else match[1]


def open_calls(row: RunRecord) -> dict[str, str]:
    """The calls of a run that wait for its client, by their ids for it, with the ids of their
    questions."""
    calls, names = calls_of(row.run), {tool.name for tool in tools_of(row.spec.meta)}
    if calls is None:
        return {}
    return {
        call_id(row.spec.id, calls.message, q.index): q.id
        for q in calls.questions
        if q.kind == "question" and q.tool in names
    }


def is_marked(agent_name: str) -> bool:
    """Whether an agent, or the agent that starts it through a family, has tools of a client."""
    return _MARK.search(agent_name) is not None


def plain_name(agent_name: str) -> str:
    """The name of the agent without the client's tools; for a sub-agent of a family, of the agent
    that starts it."""
    mark = _MARK.search(agent_name)
    return agent_name if mark is None else agent_name[: mark.start()]
