"""`agent_spawn` and `agent_fork`: a child with a clean context, or with all that was said. Both return at once."""

from __future__ import annotations

from typing import Any, Literal

from retinue.core.orders import Context, Lane, Order, Orders
from retinue.core.spawn import fork_point
from retinue.core.values import Budget, Capabilities, Limits, ToolSchema, Value, Words
from retinue.tools.base import Caller, Returned
from retinue.tools.families.agent_settings import ALIASES, PROVIDERS, AgentSettings, resolve
from retinue.tools.families.base import (
    Complaint,
    FamilyTool,
    as_json,
    dialect_tools,
    helper_name,
    looking,
    object_schema,
)
from retinue.tools.families.states import agent_state

SPAWN, FORK, SEND = "agent_spawn", "agent_fork", "agent_send"
TOOLS = (
    SPAWN,
    FORK,
    "agent_status",
    "agent_cancel",
    "agent_list",
    SEND,
    "agent_wait",
    "agent_resume",
)
RESULT = "\nUse agent_status for the whole result."
WORDS = Words(
    notice={
        "completed": "Sub-agent {label} ({id}) completed: {brief}" + RESULT,
        "incomplete": "Sub-agent {label} ({id}) completed with a partial result ({stop}): {brief}" + RESULT,
        "cancelled": "Sub-agent {label} ({id}) was cancelled.",
        "": "Sub-agent {label} ({id}) failed: {error}",
    },
    denied="Tool not found: {tool}",
)
COMMS_IN_PROMPT = (
    "You work for another agent and can write to it: call {send} with agent_id {parent} and your message. It may "
    "write to you; what it writes stands in your conversation as a message from {parent}. Write when you have a "
    "question or an interim result that cannot wait; your last reply is reported by itself.\n\nYour task:\n{prompt}"
)


class ToolAccess(Value, forbid_unknown_fields=True):
    policy: Literal["inherit", "allow_list", "deny_list"] = "inherit"
    tools: tuple[str, ...] = ()


class SpawnBudget(Value, forbid_unknown_fields=True):
    max_tokens: int | None = None
    max_turns: int | None = None
    max_tool_calls: int | None = None


class SpawnArgs(Value, forbid_unknown_fields=True):
    prompt: str
    provider: str | None = None
    model: str | None = None
    tool_access: ToolAccess | None = None
    budget: SpawnBudget | None = None
    system_prompt: str | None = None
    host_mode: bool = False


class ForkArgs(Value, forbid_unknown_fields=True):
    prompt: str
    provider: Literal["anthropic", "openai", "gemini"] | None = None
    model: str | None = None
    tool_access: ToolAccess | None = None
    budget_policy: str | None = None


def short(id: str) -> str:
    """The first twelve hexadecimal digits of an id, as names carry them."""
    return id.replace("-", "")[:12]


def access_of(asked: ToolAccess | None, settings: AgentSettings, caller: Caller) -> Capabilities:
    """What the model asked for; tools to start children are lent only where nesting is wired."""
    asked = asked or ToolAccess()
    nests = settings.grant_spawn_tools and settings.allow_nested_spawn
    nests = nests and caller.spec.depth + 1 < settings.concurrency_limits.max_depth
    kept = TOOLS if nests else ((SEND,) if settings.enable_comms else ())
    hidden = (dialect_tools(caller) | set(TOOLS)) - set(kept)
    if asked.policy == "allow_list":
        tools = tuple(sorted({*asked.tools, *kept}))
        return Capabilities(tools=tools, deny=tuple(sorted(hidden)), spawn=nests)
    denied = asked.tools if asked.policy == "deny_list" else ()
    return Capabilities(deny=tuple(sorted({*hidden, *denied})), spawn=nests)


class _Starter(FamilyTool):
    risk = "execute"
    words = WORDS

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings

    async def check_limits(self, caller: Caller, verb: str, noun: str) -> None:
        """First what is full, then whether the caller may nest at all."""
        limits = self.settings.concurrency_limits
        children = await caller.children()
        running = sum(agent_state(run) == "running" for _, run in children)
        full = running >= min(limits.max_concurrent_agents, limits.max_children_per_agent)
        if full or caller.spec.depth >= limits.max_depth:
            raise Complaint(f"Cannot {verb}: concurrency or depth limit reached")
        if caller.spec.depth > 0 and not self.settings.allow_nested_spawn:
            raise Complaint(f"Nested {noun} is not allowed at this depth")

    def limits(self, caller: Caller, bond: str = "wait") -> dict[str, Any]:
        """The same numbers for the machine, which counts them again when the order is taken: those of a tree in lanes.

        A parent stays for its children, who report to it; one that lives for messages ends with its parent.
        """
        limits, root = self.settings.concurrency_limits, caller.spec.root
        lanes = (
            Lane(name=f"agents of {root}", size=limits.max_concurrent_agents, on_full="refuse"),
            Lane(name=f"ops of {root}", size=limits.max_concurrent_ops, on_full="refuse"),
        )
        return {
            "lanes": lanes,
            "limits": Limits(depth=limits.max_depth, children=limits.max_children_per_agent),
            "join": "none",
            "bond": bond,
            "unknown_tool": "ignore",
        }

    def refusals(self, verb: str, failed: str) -> dict[str, str]:
        full = f"Cannot {verb}: concurrency or depth limit reached"
        out = dict.fromkeys(("depth", "running", "children"), full)
        out["budget"] = f"{failed}: the budget that was asked for is more than is left"
        out["tools"] = f"{failed}: none of the tools that were asked for can be lent"
        out["breaker"] = f"{failed}: the last sub-agents all failed alike; wait a minute or change the task"
        return out

    def model_note(self) -> str:
        lists = self.settings.allowed_models
        if lists is None:
            return "The model to use; left out, your own."
        listed = "; ".join(f"{provider}: {', '.join(lists[provider])}" for provider in PROVIDERS)
        return f"The model to use. Allowed models by provider: {listed}"

    def cap(self, tokens: int | None) -> int | None:
        most = self.settings.max_budget_per_agent
        return tokens if most is None or tokens is None else min(tokens, most)


_ACCESS = {
    "description": (
        'Which tools it may use: {"policy": "inherit"} (all of yours, the default), {"policy": "allow_list", "tools": '
        '[...]} or {"policy": "deny_list", "tools": [...]}. May be given as a string of JSON.'
    ),
    "anyOf": [
        object_schema(
            {
                "policy": {"type": "string", "enum": ["inherit", "allow_list", "deny_list"]},
                "tools": {"type": "array", "items": {"type": "string"}},
            },
            ("policy",),
        ),
        {"type": "string"},
    ],
}


class SpawnTool(_Starter):
    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        properties: dict[str, Any] = {
            "prompt": {"type": "string", "description": "The whole task: it sees nothing else."},
            "provider": {"type": "string", "description": f"The model's provider: {', '.join(PROVIDERS)}."},
            "model": {"type": "string", "description": self.model_note()},
            "tool_access": _ACCESS,
            "budget": {
                **object_schema({f: {"type": "integer", "minimum": 0} for f in SpawnBudget.__struct_fields__}),
                "description": f"What it may use at most; {settings.default_budget} tokens if left out.",
            },
            "system_prompt": {"type": "string", "description": "Instructions for it, instead of yours."},
        }
        if settings.enable_comms:
            note = "Keep it alive for messages after its first answer."
            properties["host_mode"] = {"type": "boolean", "description": note}
        self.schema = ToolSchema(
            name=SPAWN,
            description=(
                "Start a sub-agent with a clean context on an independent task. Returns at once with its agent_id; you "
                "are told when it ends."
            ),
            parameters=object_schema(properties, ("prompt",)),
        )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        asked = self.read(args, SpawnArgs, "tool_access", "budget")
        await self.check_limits(caller, "spawn sub-agent", "spawning")
        if not asked.prompt.strip():
            raise Complaint("Prompt cannot be empty")
        if asked.host_mode and not self.settings.enable_comms:
            raise Complaint("host_mode requires comms to be enabled for sub-agents")
        if asked.provider is not None and asked.provider.strip().lower() not in ALIASES:
            raise Complaint(f"Invalid provider: {asked.provider}")
        wanted = ALIASES[asked.provider.strip().lower()] if asked.provider is not None else None
        known = looking(caller).models()
        provider, model, real = resolve(self.settings, wanted, asked.model, caller.spec.model, known)
        id = caller.child_id()
        order = self._order(caller, asked, id, real)
        reply = {
            "agent_id": id,
            "name": f"sub-agent-{short(id)}",
            "provider": provider,
            "model": model,
            "state": "running",
            "message": "Sub-agent spawned successfully. Use agent_status to check progress.",
        }
        if self.settings.enable_comms:
            reply["comms"] = comms_note(id)
        refusals = self.refusals("spawn sub-agent", "Failed to spawn sub-agent")
        return Orders(spawns=(order,), answer=as_json(reply), refusals=refusals)

    def _order(self, caller: Caller, asked: SpawnArgs, id: str, model: str) -> Order:
        budget = asked.budget or SpawnBudget()
        tokens = self.settings.default_budget if budget.max_tokens is None else self.cap(budget.max_tokens)
        task = asked.prompt
        if self.settings.enable_comms:
            task = COMMS_IN_PROMPT.format(send=SEND, parent=caller.id, prompt=asked.prompt)
        return caller.order(
            helper_name(caller.spec.order.agent, "agent"),
            task,
            label=f"sub-agent-{short(id)}",
            access=access_of(asked.tool_access, self.settings, caller),
            instructions=asked.system_prompt if asked.system_prompt is not None else self._inherited(),
            budget=Budget(tokens=tokens, calls=budget.max_tool_calls),
            max_turns=budget.max_turns,
            model=model,
            host=asked.host_mode,
            **self.limits(caller, "cancel" if asked.host_mode else "wait"),
        )

    def _inherited(self) -> str | None:
        """Helpers are defined with their parent's instructions; "" takes those away."""
        return None if self.settings.inherit_system_prompt else ""


class ForkTool(_Starter):
    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        self.schema = ToolSchema(
            name=FORK,
            description=(
                "Start a sub-agent that knows everything said so far and goes on with the prompt you give. Use it to "
                "try alternatives side by side, or for work that needs this conversation. Returns at once."
            ),
            parameters=object_schema(
                {
                    "prompt": {"type": "string", "description": "What it is to do, added to the conversation so far."},
                    "provider": {"type": "string", "enum": list(PROVIDERS)},
                    "model": {"type": "string", "description": self.model_note()},
                    "tool_access": _ACCESS,
                    "budget_policy": {
                        "type": "string",
                        "description": "equal (default), remaining, proportional, or fixed:<tokens>.",
                    },
                },
                ("prompt",),
            ),
        )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        asked = self.read(args, ForkArgs, "tool_access")
        await self.check_limits(caller, "fork agent", "forking")
        if not asked.prompt.strip():
            raise Complaint("Fork prompt cannot be empty")
        known = looking(caller).models()
        provider, model, real = resolve(self.settings, asked.provider, asked.model, caller.spec.model, known)
        id = caller.child_id()
        tokens, share = self._allowance(asked.budget_policy)
        order = caller.order(
            caller.spec.order.agent,
            asked.prompt,
            label=f"fork-{short(id)}",
            context=Context(kind="fork"),
            access=access_of(asked.tool_access, self.settings, caller),
            budget=Budget(tokens=tokens),
            share=share,
            model=real,
            max_turns=caller.spec.order.max_turns,
            report="text",
            must_submit=False,
            **self.limits(caller),
        )
        reply = {
            "agent_id": id,
            "name": f"fork-{short(id)}",
            "provider": provider,
            "model": model,
            "state": "running",
            "messages_inherited": fork_point(caller.run) - caller.run.start,
            "message": "Forked agent spawned successfully. Use agent_status to check progress.",
        }
        if self.settings.enable_comms:
            reply["comms"] = comms_note(id)
        refusals = self.refusals("fork agent", "Failed to spawn forked agent")
        return Orders(spawns=(order,), answer=as_json(reply), refusals=refusals)

    def _allowance(self, policy: str | None) -> tuple[int | None, str]:
        """Tokens and the way to share. What cannot be read counts as `equal`."""
        kind, _, amount = (policy or "equal").strip().partition(":")
        if kind == "fixed" and amount.isdigit():
            return self.cap(int(amount)), ""
        if kind in ("remaining", "proportional"):
            return self.cap(self.settings.max_budget_per_agent), kind
        return self.cap(self.settings.default_budget), ""


def comms_note(id: str) -> str:
    return f"To write to it, call {SEND} with agent_id {id}. What it writes to you arrives as a message from {id}."
