"""Everything Retinue offers to MCP clients: the table of methods, for the tools, tasks and
resources of one guest. The tools themselves are imported when the first of them is called, so that
a list of them is answered immediately."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from retinue.mcp import rpc_messages as rpc
from retinue.mcp.completions import Completed, completion, no_values
from retinue.mcp.guests import Guest
from retinue.mcp.host_link import HostLink
from retinue.mcp.protocol_versions import TASKS, ClientFacts
from retinue.mcp.rpc_messages import RpcError
from retinue.mcp.rpc_server import Method, RpcCall
from retinue.mcp.tool_table import INSTRUCTIONS, TOOLS, tools_for

if TYPE_CHECKING:
    from retinue.mcp.guest_calls import GuestCalls

GOAL = "goal"
PROMPT: dict[str, Any] = {
    "name": "delegate",
    "title": "Delegate to sub-agents",
    "description": "When to give work to sub-agents, when not, and how to say what you want.",
    "arguments": [{"name": GOAL, "description": "What is to be achieved.", "required": False}],
}
ADVICE = """\
Decide what of this you give to sub-agents with the tool `delegate`, and what you do yourself.

Delegate work that can be described completely, takes many steps, and whose answer is short: a
search through many files, a review, a change in one part, several independent things. Give
each agent one task, with every fact it needs: it does not see this conversation. Say what the
answer has to contain. Set budget_usd when a task could grow.

Do it yourself when it takes a few steps, when you would have to explain more than to do, when parts
depend on each other step by step, or when the user has to be asked on the way.

Start independent tasks in one call. Use background for what you do not need now, and collect it
with `result`. Check what comes back before you rely on it, and say in your answer what you did
not check."""

TASK_METHODS = ("get", "update", "cancel", "result")
LinkFor = Callable[[Guest, Any], HostLink]
"""The way to the host for a guest, with the rights of the identity that the transport found."""


class AgentOffer:
    """One server's offer to its guests. `named` gives the guest of a client. With `is_local`, a
    client is at the other end of this process: its directories are ours, and it can be
    notified at any time."""

    instructions = INSTRUCTIONS

    def __init__(
        self, named: Callable[[RpcCall], Guest], link_for: LinkFor, *, is_local: bool = False
    ) -> None:
        self._named, self._link_for = named, link_for
        self._is_local = is_local
        self._calls_by_guest: dict[tuple[Guest, Any], GuestCalls] = {}
        self.methods: Mapping[str, Method] = {
            "tools/list": _list_tools,
            "tools/call": self._call_tool,
            "prompts/list": _list_prompts,
            "prompts/get": _get_prompt,
            "resources/list": lambda call: self._calls(call).resources.listed(call),
            "resources/templates/list": lambda call: self._calls(call).resources.templates(call),
            "resources/read": lambda call: self._calls(call).resources.read(call),
            "resources/subscribe": lambda call: self._calls(call).subscriptions.subscribe(call),
            "resources/unsubscribe": lambda call: self._calls(call).subscriptions.unsubscribe(call),
            "completion/complete": lambda call: completion(call, self._completed(call)),
            "subscriptions/listen": lambda call: self._calls(call).subscriptions.listen(call),
            **{f"tasks/{name}": self._task_method(name) for name in TASK_METHODS},
        }

    def capabilities(self, client: ClientFacts) -> dict[str, Any]:
        out: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}
        if client.is_stateless or self._is_local:  # else there is no way to notify it
            out["resources"] = {"subscribe": True}
        if client.is_stateless:
            out["extensions"] = {TASKS: {}}
        elif client.has_old_tasks:
            out["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        return out

    def _task_method(self, name: str) -> Method:
        return lambda call: self._calls(call).tasks.methods[f"tasks/{name}"](call)

    def _completed(self, call: RpcCall) -> Completed:
        resources = self._calls(call).resources.completed
        return {**resources, (PROMPT["name"], GOAL): no_values}

    def _calls(self, call: RpcCall) -> GuestCalls:
        from retinue.mcp.guest_calls import GuestCalls

        guest, owner = self._named(call), call.session.owner
        if (guest, owner) not in self._calls_by_guest:
            self._calls_by_guest[guest, owner] = GuestCalls(
                self._link_for(guest, owner), guest, is_local=self._is_local
            )
        return self._calls_by_guest[guest, owner]

    async def _call_tool(self, call: RpcCall) -> dict[str, Any]:
        name = call.text_param("name")
        if name not in {tool["name"] for tool in TOOLS}:
            raise RpcError(rpc.INVALID_PARAMS, f"Tool {name[:80]!r} not found.")
        return await self._calls(call).call_tool(name, call)


async def _list_tools(call: RpcCall) -> dict[str, Any]:
    return {"tools": tools_for(call.client)}


async def _list_prompts(call: RpcCall) -> dict[str, Any]:
    return {"prompts": [PROMPT]}


async def _get_prompt(call: RpcCall) -> dict[str, Any]:
    if call.text_param("name") != PROMPT["name"]:
        raise RpcError(rpc.INVALID_PARAMS, "The only prompt is 'delegate'.")
    values = call.params.get("arguments") or {}
    goal = values.get(GOAL, "") if isinstance(values, dict) else None
    if not isinstance(goal, str):
        raise RpcError(rpc.INVALID_PARAMS, "The arguments of a prompt are strings.")
    text = f"{ADVICE}\n\nThe goal: {goal}" if goal else ADVICE
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return {"description": PROMPT["description"], "messages": [message]}
