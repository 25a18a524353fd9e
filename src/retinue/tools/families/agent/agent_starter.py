"""Shared by spawning and forking an agent."""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import replace

from retinue.core.spec import Lane, RunRequest
from retinue.core.values import Permissions, SpawnLimits, Value
from retinue.tools.base import Context
from retinue.tools.families.agent.agent_settings import INHERIT, PROVIDERS, AgentSettings
from retinue.tools.families.agent.agent_tool import FORK, MOST, SEND, SPAWN, TOOLS, WORDS, AgentTool
from retinue.tools.families.base import (
    CallComplaint,
    dialect_tools,
    level_of,
    object_schema,
    reader_of,
)
from retinue.tools.families.family_states import agent_state


class ToolAccess(Value, forbid_unknown_fields=True):
    policy: Literal["inherit", "allow_list", "deny_list"]
    tools: tuple[str, ...] | None = None


def access_of(
    request: ToolAccess | None, settings: AgentSettings, context: Context, level: int
) -> Permissions:
    """What the model asked for. Tools that start children are given only where nesting is wired,
    and an allow list has to name them like any other; with comms the tool to write to the parent is
    always there."""
    nests = settings.grant_spawn_tools and settings.allow_nested_spawn
    nests = nests and level + 1 < settings.concurrency_limits.max_depth
    talk = (SEND,) if settings.enable_comms else ()
    hidden = (dialect_tools(context) | set(TOOLS)) - {*(TOOLS if nests else ()), *talk}
    policy, named = ("inherit", ()) if request is None else (request.policy, request.tools or ())
    tools = tuple(sorted({*named, *talk})) if policy == "allow_list" else None
    denied = named if policy == "deny_list" else ()
    return Permissions(tools=tools, deny=tuple(sorted({*hidden, *denied})), may_spawn=nests)


WITHHELD = {
    SPAWN: "Cannot spawn sub-agent: concurrency or depth limit reached",
    FORK: "Cannot fork agent: concurrency or depth limit reached",
}
NOT_NESTED = {
    SPAWN: "Nested spawning is not allowed at this depth",
    FORK: "Nested forking is not allowed at this depth",
}
"""Where nesting is wired, a run that may not nest gets an error. Elsewhere the tools look as if
they were not there."""


class Starter(AgentTool):
    """Starts children: the limits, and the fields that all their requests share."""

    risk = "execute"
    notices = WORDS
    starts = "agent"

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        if settings.grant_spawn_tools:
            nests = settings.allow_nested_spawn or settings.concurrency_limits.max_depth < 2
            self.notices = replace(WORDS, refused=WITHHELD if nests else NOT_NESTED)

    def read_access(self, request: ToolAccess | None) -> ToolAccess | None:
        """A policy that does not fit its list is not guessed at: the child could hold more than was
        meant."""
        if request is not None and request.policy == "inherit" and request.tools:
            raise CallComplaint(
                f"{self.invalid_prefix}: tool_access.tools needs the policy allow_list or deny_list"
            )
        if request is not None and request.policy != "inherit" and request.tools is None:
            raise CallComplaint(
                f"{self.invalid_prefix}: tool_access.tools is missing; the policy {request.policy} "
                "needs it"
            )
        return request

    async def check_limits(self, context: Context, verb: str, noun: str) -> None:
        """First which limit is reached, then whether the calling run may nest at all."""
        limits = self.settings.concurrency_limits
        running = sum(agent_state(run) == "running" for _, run in await context.children())
        most = min(limits.max_concurrent_agents, self.room(context), limits.max_children_per_agent)
        level = level_of(context, self)
        if running >= most or level >= limits.max_depth:
            raise CallComplaint(f"Cannot {verb}: concurrency or depth limit reached")
        if level > 0 and not self.settings.allow_nested_spawn:
            raise CallComplaint(f"Nested {noun} is not allowed at this depth")

    def room(self, context: Context) -> int:
        """How many runs there may be below the root: operations of all kinds share one number, and
        calls of tools that start no run are operations too."""
        most: int = self.settings.concurrency_limits.max_concurrent_ops
        return max(0, most - reader_of(context).n_calls(context.spec.root))

    def child_request(self, context: Context, agent: str, task: str, **options: Any) -> RunRequest:
        """A request with the same numbers for the machine, which counts them again when it is
        taken. Nothing comes from the defaults of the parent's agent: a child neither announces nor
        hosts because its parent does.

        A parent stays for its children, who report to it; one that lives for messages ends with its
        parent."""
        limits, root, mine = (
            self.settings.concurrency_limits,
            context.spec.root,
            context.spec.request,
        )
        lane = Lane(
            name=f"agents of {root}",
            size=limits.max_concurrent_agents,
            on_full="refuse",
            scope="tree",
        )
        deepest = context.spec.depth - level_of(context, self) + limits.max_depth
        most = SpawnLimits(
            depth=deepest, children=limits.max_children_per_agent, tree=self.room(context)
        )
        return RunRequest(
            agent=agent,
            task=task,
            join="none",
            on_parent_end="cancel" if options.get("stay_open") else "wait",
            lanes=(lane,),
            limits=most,
            on_unknown_tool="ignore",
            cwd=mine.cwd,
            retry=mine.retry,
            **options,
        )

    def refusals(self, verb: str, failed: str) -> dict[str, str]:
        full = f"Cannot {verb}: concurrency or depth limit reached"
        out = dict.fromkeys(("depth", "running", "children"), full)
        out["budget"] = (
            failed + ": it would get more than is left of your budget ({why}). Request less"
        )
        out["tools"] = f"{failed}: none of the requested tools can be given to it"
        out["breaker"] = (
            f"{failed}: the last sub-agents all failed with the same error. Wait a "
            "minute, or change the task"
        )
        out["model"] = f"{failed}: you cannot use that model"
        out["agent"] = f"{failed}: you cannot start this kind of sub-agent"
        return out

    def provider_note(self) -> str:
        default = self.settings.default_provider
        return "the provider of your model" if default == INHERIT else default

    def model_note(self) -> str:
        settings = self.settings
        lists, default = settings.allowed_models, settings.default_model
        if lists is None:
            return (
                "The model to use. Default: "
                f"{default if settings.is_default_named else 'your own'}."
            )
        listed = "; ".join(f"{provider}: {', '.join(lists[provider])}" for provider in PROVIDERS)
        left_out = "your own" if default == "inherit" else default
        if default is None:
            left_out = "the first of the provider"
        return f"The model to use. Allowed models by provider: {listed}. Default: {left_out}."

    def cap(self, tokens: int) -> int:
        most = self.settings.max_budget_per_agent
        return min(tokens, MOST if most is None else most)


ACCESS = {
    "description": (
        'The tools it may use: {"policy": "inherit"} (all of yours, the default), '
        '{"policy": "allow_list", "tools": [...]} or '
        '{"policy": "deny_list", "tools": [...]}. Can also be a JSON string.'
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
