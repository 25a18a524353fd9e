"""`agent_spawn` and `agent_fork`: a child with a clean context, or with all that was said. Both
return at once."""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import replace

from retinue.core.spawn import fork_point
from retinue.core.spec import DRAWN, Context, Lane, Order, Orders
from retinue.core.values import Budget, Capabilities, Limits, ToolSchema, Value
from retinue.tools.base import Caller, Returned
from retinue.tools.families.agent.agent_settings import (
    ALIASES,
    INHERIT,
    PROVIDERS,
    AgentSettings,
    resolve,
)
from retinue.tools.families.agent.agent_tool import (
    FORK,
    MOST,
    SEND,
    SPAWN,
    TOOLS,
    WORDS,
    AgentTool,
    SpawnBudget,
    comms_note,
    guide,
    short,
    with_comms,
)
from retinue.tools.families.base import (
    CallComplaint,
    as_json,
    dialect_tools,
    helper_name,
    level_of,
    looking,
    object_schema,
)
from retinue.tools.families.family_states import agent_state


class ToolAccess(Value, forbid_unknown_fields=True):
    policy: Literal["inherit", "allow_list", "deny_list"]
    tools: tuple[str, ...] | None = None


class AgentSpawnArgs(Value, forbid_unknown_fields=True):
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


def access_of(
    asked: ToolAccess | None, settings: AgentSettings, caller: Caller, level: int
) -> Capabilities:
    """What the model asked for. Tools to start children are lent only where nesting is wired, and
    an allow list has to name them like any other; with comms the tool to write to the parent is
    always there."""
    nests = settings.grant_spawn_tools and settings.allow_nested_spawn
    nests = nests and level + 1 < settings.concurrency_limits.max_depth
    talk = (SEND,) if settings.enable_comms else ()
    hidden = (dialect_tools(caller) | set(TOOLS)) - {*(TOOLS if nests else ()), *talk}
    policy, named = ("inherit", ()) if asked is None else (asked.policy, asked.tools or ())
    tools = tuple(sorted({*named, *talk})) if policy == "allow_list" else None
    denied = named if policy == "deny_list" else ()
    return Capabilities(tools=tools, deny=tuple(sorted({*hidden, *denied})), spawn=nests)


WITHHELD = {
    SPAWN: "Cannot spawn sub-agent: concurrency or depth limit reached",
    FORK: "Cannot fork agent: concurrency or depth limit reached",
}
NOT_NESTED = {
    SPAWN: "Nested spawning is not allowed at this depth",
    FORK: "Nested forking is not allowed at this depth",
}
"""Where nesting is wired, who may not nest is told so. Elsewhere the tools look as if they were not
there."""


def amount(asked: int | None) -> int | None:
    return None if asked is None else min(asked, MOST)


class Starter(AgentTool):
    """What starts children: the limits, and what all of their orders have in common."""

    risk = "execute"
    words = WORDS
    starts = "agent"

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        if settings.grant_spawn_tools:
            nests = settings.allow_nested_spawn or settings.concurrency_limits.max_depth < 2
            self.words = replace(WORDS, refused=WITHHELD if nests else NOT_NESTED)

    def read_access(self, asked: ToolAccess | None) -> ToolAccess | None:
        """A policy that does not fit its list is not guessed at: the child could hold more than was
        meant."""
        if asked is not None and asked.policy == "inherit" and asked.tools:
            raise CallComplaint(
                f"{self.invalid}: tool_access.tools is read only with the policy allow_list or "
                "deny_list"
            )
        if asked is not None and asked.policy != "inherit" and asked.tools is None:
            raise CallComplaint(
                f"{self.invalid}: tool_access.tools is missing; the policy {asked.policy} needs it"
            )
        return asked

    async def check_limits(self, caller: Caller, verb: str, noun: str) -> None:
        """First what is full, then whether the caller may nest at all."""
        limits = self.settings.concurrency_limits
        running = sum(agent_state(run) == "running" for _, run in await caller.children())
        most = min(limits.max_concurrent_agents, self.room(caller), limits.max_children_per_agent)
        level = level_of(caller, self)
        if running >= most or level >= limits.max_depth:
            raise CallComplaint(f"Cannot {verb}: concurrency or depth limit reached")
        if level > 0 and not self.settings.allow_nested_spawn:
            raise CallComplaint(f"Nested {noun} is not allowed at this depth")

    def room(self, caller: Caller) -> int:
        """How many runs there may be below the root: operations of all kinds share one number, and
        calls of tools that start nobody are operations too."""
        most: int = self.settings.concurrency_limits.max_concurrent_ops
        return max(0, most - looking(caller).n_calls(caller.spec.root))

    def order(self, caller: Caller, agent: str, task: str, **options: Any) -> Order:
        """An order with the same numbers for the machine, which counts them again when it is taken.
        Nothing comes from the defaults of the parent's agent: a child neither announces nor hosts
        because its parent does.

        A parent stays for its children, who report to it; one that lives for messages ends with its
        parent."""
        limits, root, mine = self.settings.concurrency_limits, caller.spec.root, caller.spec.order
        lane = Lane(
            name=f"agents of {root}",
            size=limits.max_concurrent_agents,
            on_full="refuse",
            scope="tree",
        )
        deepest = caller.spec.depth - level_of(caller, self) + limits.max_depth
        most = Limits(depth=deepest, children=limits.max_children_per_agent, tree=self.room(caller))
        return Order(
            agent=agent,
            task=task,
            join="none",
            bond="cancel" if options.get("host") else "wait",
            lanes=(lane,),
            limits=most,
            unknown_tool="ignore",
            cwd=mine.cwd,
            retry=mine.retry,
            **options,
        )

    def refusals(self, verb: str, failed: str) -> dict[str, str]:
        full = f"Cannot {verb}: concurrency or depth limit reached"
        out = dict.fromkeys(("depth", "running", "children"), full)
        out["budget"] = (
            failed + ": it would get more than is left of your own budget ({why}); ask for less"
        )
        out["tools"] = f"{failed}: none of the tools that were asked for can be lent"
        out["breaker"] = (
            f"{failed}: the last sub-agents all failed alike; wait a minute or change the task"
        )
        out["model"] = f"{failed}: you may not use that model"
        out["agent"] = f"{failed}: you may not start sub-agents of this kind"
        return out

    def provider_note(self) -> str:
        default = self.settings.default_provider
        return "that of your own model" if default == INHERIT else default

    def model_note(self) -> str:
        settings = self.settings
        lists, default = settings.allowed_models, settings.default_model
        if lists is None:
            return (
                f"The model to use; left out, "
                f"{default if settings.is_default_named else 'your own'}."
            )
        listed = "; ".join(f"{provider}: {', '.join(lists[provider])}" for provider in PROVIDERS)
        left_out = (
            "the first of its provider"
            if default is None
            else "your own"
            if default == "inherit"
            else default
        )
        return f"The model to use. Allowed models by provider: {listed}. Left out: {left_out}."

    def cap(self, tokens: int) -> int:
        most = self.settings.max_budget_per_agent
        return min(tokens, MOST if most is None else most)


_ACCESS = {
    "description": (
        'Which tools it may use: {"policy": "inherit"} (all of yours, the default), {"policy": '
        '"allow_list", "tools": '
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


class AgentSpawnTool(Starter):
    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        default = settings.default_budget
        left_out = "no limit of tokens" if default is None else f"{default} tokens"
        providers = (
            f"The model's provider: {', '.join(PROVIDERS)}. Left out: {self.provider_note()}."
        )
        properties: dict[str, Any] = {
            "prompt": {"type": "string", "description": "The whole task: it sees nothing else."},
            "provider": {"type": "string", "description": providers},
            "model": {"type": "string", "description": self.model_note()},
            "tool_access": _ACCESS,
            "budget": {
                **object_schema(
                    {f: {"type": "integer", "minimum": 0} for f in SpawnBudget.__struct_fields__}
                ),
                "description": f"What it may use at most; {left_out} if left out.",
            },
            "system_prompt": {
                "type": "string",
                "description": "Instructions for it, instead of yours.",
            },
        }
        if settings.enable_comms:
            note = "Keep it alive for messages after its first answer (false)."
            properties["host_mode"] = {"type": "boolean", "description": note}
        self.schema = ToolSchema(
            name=SPAWN,
            description=(
                "Start a sub-agent with a clean context on an independent task. Returns at once "
                "with its agent_id; you "
                "are told when it ends."
            ),
            parameters=object_schema(properties, ("prompt",)),
        )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        asked = self.read(args, AgentSpawnArgs, "tool_access", "budget")
        access = self.read_access(asked.tool_access)
        await self.check_limits(caller, "spawn sub-agent", "spawning")
        if not asked.prompt.strip():
            raise CallComplaint("Prompt cannot be empty")
        if asked.host_mode and not self.settings.enable_comms:
            raise CallComplaint("host_mode requires comms to be enabled for sub-agents")
        if asked.provider is not None and asked.provider.strip().lower() not in ALIASES:
            raise CallComplaint(f"Invalid provider: {asked.provider}")
        wanted = ALIASES[asked.provider.strip().lower()] if asked.provider is not None else None
        look = looking(caller)
        provider, model, real = resolve(self.settings, wanted, asked.model, caller.spec.model, look)
        id = caller.child_id()
        name = f"sub-agent-{short(id)}"
        order = self._order(caller, asked, access, name, real)
        reply = {
            "agent_id": id,
            "name": name,
            "provider": provider,
            "model": model,
            "state": "running",
            "message": "Sub-agent spawned successfully. Use agent_status to check progress.",
        }
        if self.settings.enable_comms:
            reply["comms"] = comms_note(id)
        refusals = self.refusals("spawn sub-agent", "Failed to spawn sub-agent")
        return Orders(spawns=(order,), answer=as_json(reply), refusals=refusals)

    def _order(
        self,
        caller: Caller,
        asked: AgentSpawnArgs,
        access: ToolAccess | None,
        name: str,
        model: str,
    ) -> Order:
        settings, budget = self.settings, asked.budget or SpawnBudget()
        is_default = budget.max_tokens is None
        tokens = (
            settings.default_budget if budget.max_tokens is None else self.cap(budget.max_tokens)
        )
        task = asked.prompt
        if settings.enable_comms:
            task = with_comms(task, caller.id, host=asked.host_mode)
        return self.order(
            caller,
            helper_name(caller.spec.order.agent, "agent"),
            task,
            label=name,
            access=access_of(access, settings, caller, level_of(caller, self)),
            instructions=asked.system_prompt
            if asked.system_prompt is not None
            else self._inherited(caller),
            budget=Budget(tokens=tokens, calls=amount(budget.max_tool_calls)),
            share=DRAWN if is_default else "",
            max_turns=amount(budget.max_turns),
            model=model,
            host=asked.host_mode,
        )

    def _inherited(self, caller: Caller) -> str | None:
        """Helpers are defined with the instructions of their parent's agent. What its run was told
        instead counts more, but not what it was told about tools that helpers do not have. ""
        stands for none."""
        if not self.settings.inherit_system_prompt:
            return ""
        told = caller.spec.order.instructions
        return None if told is None else told.replace(guide(self.settings.more_tools), "").strip()


class ForkTool(Starter):
    is_fork = True

    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        told = f"The model's provider. Left out: {self.provider_note()}."
        provider = {"type": "string", "enum": list(PROVIDERS), "description": told}
        policies = "What it may use: equal (default), remaining, proportional, or fixed:<tokens>."
        self.schema = ToolSchema(
            name=FORK,
            description=(
                "Start a sub-agent that knows everything said so far and goes on with the prompt "
                "you give. Use it to "
                "try alternatives side by side, or for work that needs this conversation. Returns "
                "at once with its "
                "agent_id; you are told when it ends."
            ),
            parameters=object_schema(
                {
                    "prompt": {
                        "type": "string",
                        "description": "What it is to do, added to the conversation so far.",
                    },
                    "provider": provider,
                    "model": {"type": "string", "description": self.model_note()},
                    "tool_access": _ACCESS,
                    "budget_policy": {"type": "string", "description": policies},
                },
                ("prompt",),
            ),
        )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        asked = self.read(args, ForkArgs, "tool_access")
        access = self.read_access(asked.tool_access)
        await self.check_limits(caller, "fork agent", "forking")
        if not asked.prompt.strip():
            raise CallComplaint("Fork prompt cannot be empty")
        look = looking(caller)
        provider, model, real = resolve(
            self.settings, asked.provider, asked.model, caller.spec.model, look
        )
        id, comms = caller.child_id(), self.settings.enable_comms
        name = f"fork-{short(id)}"
        tokens, share = self._allowance(asked.budget_policy, caller)
        order = self.order(
            caller,
            caller.spec.order.agent,
            with_comms(asked.prompt, caller.id) if comms else asked.prompt,
            label=name,
            context=Context(kind="fork"),
            access=access_of(access, self.settings, caller, level_of(caller, self)),
            instructions=caller.spec.order.instructions,
            budget=Budget(tokens=tokens),
            share=share,
            model=real,
            max_turns=caller.spec.order.max_turns,
        )
        reply = {
            "agent_id": id,
            "name": name,
            "provider": provider,
            "model": model,
            "state": "running",
            "messages_inherited": fork_point(caller.run) - caller.run.start,
            "message": "Forked agent spawned successfully. Use agent_status to check progress.",
        }
        if comms:
            reply["comms"] = comms_note(id)
        refusals = self.refusals("fork agent", "Failed to spawn forked agent")
        return Orders(spawns=(order,), answer=as_json(reply), refusals=refusals)

    def _allowance(self, policy: str | None, caller: Caller) -> tuple[int | None, str]:
        """Tokens, and the way to share. What cannot be read counts as `equal`, and so does
        `proportional`.

        With `remaining` the fork draws on its parent's own account: nothing is set aside for it, so
        that the parent can go on as well. A parent without a budget has no remainder."""
        kind, _, n = (policy or "equal").strip().partition(":")
        if kind == "fixed" and n.isascii() and n.isdecimal():
            n = n.lstrip("0") or "0"
            return self.cap(int(n) if len(n) <= len(str(MOST)) else MOST), ""
        mine, most = caller.spec.order.budget.tokens, self.settings.max_budget_per_agent
        if kind == "remaining" and mine is not None:
            return (None, "") if most is None or most >= mine else (most, "remaining")
        return self.settings.default_budget, DRAWN
