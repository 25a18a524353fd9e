"""The family `subagent`: one blocking call, a task and then a summary of it; children may nest, and can never regain a
tool that somebody above them gave up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from retinue.core.effects import ChildOutcome
from retinue.core.orders import Lane, Order, Orders
from retinue.core.policy import allows
from retinue.core.values import Artifact, Capabilities, Limits, ToolSchema, Value
from retinue.tools.base import Caller, Returned, Tool
from retinue.tools.families.base import (
    Complaint,
    Family,
    FamilyTool,
    Settings,
    as_json,
    helper_name,
    looking,
    object_schema,
)
from retinue.tools.families.quota import Quota, Quotas, QuotaSpent
from retinue.tools.families.states import SUBAGENT

ONE, MANY = "subagent", "parallel_subagent"
READER = "artifact"
"""Reads on where an output was cut; whoever has it can lend it beside any list."""
SUMMARY = "Sum up what you found, concisely: results first, then what stayed open."
MAX_TURNS = 50
MAX_CONCURRENT = 5
MARK = "\n... (truncated)"
ROOM = 40_000
"""Bytes for the outputs of one batch: the results of many tasks fit into one answer together."""
NO_SUMMARY = ("turn_limit", "budget", "deadline")


class SubagentSettings(Settings):
    """`[agent.subagent]`. Amounts of None are no limit; `model` overrides the parent's."""

    max_depth: int = 3
    default_max_turns: int = 10
    output_max_size: int = 4096
    max_executions: int | None = None
    max_total_tokens: int | None = None
    max_total_time: float | None = None
    model: str = ""

    def __post_init__(self) -> None:
        _within("max_depth", self.max_depth, 10, " (every level multiplies the cost)")
        _within("default_max_turns", self.default_max_turns, 100)
        if self.output_max_size < 1024:
            raise ValueError("agent.subagent.output_max_size must be at least 1024 bytes")
        for name in ("max_executions", "max_total_tokens", "max_total_time"):
            amount = getattr(self, name)
            if amount is not None and amount < 0:
                raise ValueError(f"agent.subagent.{name} must be 0 or more")


def _within(name: str, value: int, most: int, why: str = "") -> None:
    if value < 1:
        raise ValueError(f"agent.subagent.{name} must be greater than 0")
    if value > most:
        raise ValueError(f"agent.subagent.{name} cannot exceed {most}{why}")


class Task(Value, forbid_unknown_fields=True):
    label: str
    task_prompt: str
    summary_prompt: str | None = None
    allowed_tools: tuple[str, ...] | None = None
    max_turns: int | None = None


class Batch(Value, forbid_unknown_fields=True):
    tasks: tuple[Task, ...]
    max_concurrent: int = 5
    fail_fast: bool = False


_TASK: dict[str, Any] = {
    "label": {"type": "string", "description": "A short name for the task, shown to people and in the result."},
    "task_prompt": {"type": "string", "description": "The whole task. The helper sees nothing of your conversation."},
    "summary_prompt": {"type": "string", "description": "How the helper is asked to sum up when it has finished."},
    "allowed_tools": {
        "type": ["array", "null"],
        "items": {"type": "string"},
        "description": "The only tools it may use. Left out or null: all that you have.",
    },
    "max_turns": {"type": "integer", "minimum": 1, "maximum": MAX_TURNS, "description": "Turns it may take (10)."},
}


class SubagentFamily(Family):
    name = "subagent"
    settings_type = SubagentSettings
    settings: SubagentSettings

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        limits = self.settings
        self.quotas = Quotas(
            Quota(limits.max_executions, limits.max_total_tokens, limits.max_total_time), tools=(ONE, MANY)
        )

    def tools(self) -> Sequence[Tool]:
        return (SubagentTool(self), ParallelTool(self))

    def helper_tools(self) -> Sequence[Tool]:
        return self.tools()

    @property
    def guide(self) -> str:
        return (
            f"You can hand a self-contained piece of work to a helper with `{ONE}`, or several at once with `{MANY}`. "
            "A helper starts with nothing but the prompt you write, works alone and returns one summary; you wait for "
            "it. Use it for work that would fill your context with details you do not need afterwards, such as reading "
            "many files or logs. Do small things yourself. Give a helper only the tools that it needs."
        )


class _Starter(FamilyTool):
    """What both tools do: check in the order of the document, then order the children."""

    def __init__(self, family: SubagentFamily) -> None:
        self.family = family

    @property
    def settings(self) -> SubagentSettings:
        return self.family.settings

    def too_deep(self, caller: Caller) -> bool:
        return caller.spec.depth + 1 >= self.settings.max_depth

    def check(self, task: Task, known: Sequence[str]) -> None:
        if not task.task_prompt.strip():
            raise Complaint("task_prompt cannot be empty")
        if not task.label.strip():
            raise Complaint("label cannot be empty")
        if task.max_turns is not None and not 1 <= task.max_turns <= MAX_TURNS:
            raise Complaint(f"max_turns must be between 1 and {MAX_TURNS}")
        for name in task.allowed_tools or ():
            if name in (ONE, MANY):
                raise Complaint(f"Subagent cannot have '{name}' in allowed_tools")
            if name not in known:
                there = ", ".join(known) or "none"
                raise Complaint(f"Unknown tool in allowed_tools: {name} (there is: {there})")

    def known_tools(self, caller: Caller) -> list[str]:
        """What the caller itself may use: nobody can lend more."""
        mine = looking(caller).tools(helper_name(caller.spec.order.agent, self.family.name))
        return [n for n in mine if n not in (ONE, MANY) and allows(caller.spec.capabilities, n)]

    def order(self, caller: Caller, task: Task, budget: Budget, timeout_ms: int | None, **fields: Any) -> Order:
        settings = self.settings
        nests = caller.spec.depth + 2 < settings.max_depth
        tools = None
        if task.allowed_tools is not None:
            tools = tuple(sorted({*task.allowed_tools, "artifact", *((ONE, MANY) if nests else ())}))
        return caller.order(
            helper_name(caller.spec.order.agent, self.family.name),
            task.task_prompt,
            label=task.label,
            join="call",
            report="summary",
            report_prompt=task.summary_prompt or SUMMARY,
            access=Capabilities(tools=tools, deny=() if nests else (MANY, ONE), spawn=nests),
            unknown_tool="ignore",
            limits=Limits(depth=settings.max_depth - 1),
            max_turns=task.max_turns or settings.default_max_turns,
            model=settings.model,
            budget=budget,
            timeout_ms=timeout_ms,
            keep_whole=settings.output_max_size,
            compose=True,
            **fields,
        )

    async def quota(self, caller: Caller, n: int) -> tuple[Budget, int | None]:
        """The share of each of `n` children in what the tree has left."""
        try:
            return await self.family.quotas.take(caller, n)
        except QuotaSpent as spent:
            raise Complaint(f"Resource quota exceeded: {spent}") from None

    def refusals(self, depth_text: str) -> dict[str, str]:
        return {"depth": depth_text}


class SubagentTool(_Starter):
    schema = ToolSchema(
        name=ONE,
        description=(
            "Let a helper do one self-contained task in a conversation of its own, and wait for its summary. It has "
            "your tools, or those you list, and sees only the prompt you give."
        ),
        parameters=object_schema(_TASK, ("label", "task_prompt")),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        await self.family.quotas.check(caller, self._spent)
        if self.too_deep(caller):
            raise Complaint(self._depth_text(caller))
        task = self.read(args, Task, "allowed_tools")
        self.check(task, self.known_tools(caller))
        budget, timeout_ms = await self.quota(caller, 1)
        order = self.order(caller, task, budget, timeout_ms)
        return Orders(spawns=(order,), refusals=self.refusals(self._depth_text(caller)))

    def _depth_text(self, caller: Caller) -> str:
        return (
            f"Maximum subagent recursion depth ({self.settings.max_depth}) exceeded. "
            f"Current depth: {caller.spec.depth}. Cannot spawn nested subagent."
        )

    @staticmethod
    def _spent(why: str) -> Complaint:
        return Complaint(f"Resource quota exceeded: {why}")

    def compose(self, outcomes: Sequence[ChildOutcome]) -> str:
        (one,) = outcomes
        return as_json(result_of(one, self.settings.output_max_size))


class ParallelTool(_Starter):
    schema = ToolSchema(
        name=MANY,
        description=(
            "Let several helpers work on independent tasks at the same time, and wait for all of their summaries. They "
            "come in the order of the tasks. With fail_fast the first failure stops the others."
        ),
        parameters=object_schema(
            {
                "tasks": {"type": "array", "minItems": 1, "items": object_schema(_TASK, ("label", "task_prompt"))},
                "max_concurrent": {"type": "integer", "minimum": 1, "description": "How many at a time (5)."},
                "fail_fast": {"type": "boolean", "description": "Stop the others when one fails (false)."},
            },
            ("tasks",),
        ),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        await self.family.quotas.check(caller, SubagentTool._spent)
        if self.too_deep(caller):
            raise Complaint(self._depth_text())
        batch = self.read(args, Batch, "tasks")
        if not batch.tasks:
            raise Complaint("At least one task required")
        if batch.max_concurrent < 1:
            raise Complaint("max_concurrent must be at least 1")
        known = self.known_tools(caller)
        for n, task in enumerate(batch.tasks):
            try:
                self.check(task, known)
            except Complaint as complaint:
                raise Complaint(f"tasks[{n}]: {complaint}") from None
        budget, timeout_ms = await self.quota(caller, len(batch.tasks))
        lane = Lane(name=f"{MANY} {caller.key}", size=batch.max_concurrent)
        fields: dict[str, Any] = {"lanes": (lane,), "fail_fast": batch.fail_fast}
        orders = tuple(self.order(caller, t, budget, timeout_ms, **fields) for t in batch.tasks)
        return Orders(spawns=orders, refusals=self.refusals(self._depth_text()))

    def _depth_text(self) -> str:
        return f"Maximum subagent depth {self.settings.max_depth} reached"

    def compose(self, outcomes: Sequence[ChildOutcome]) -> str:
        results = [_line_of(o, self.settings.output_max_size) for o in outcomes]
        began = min(o.created_at for o in outcomes)
        good = sum(r["success"] for r in results)
        return as_json(
            {
                "results": results,
                "total_duration_ms": max(o.ending.at for o in outcomes) - began,
                "successful": good,
                "failed": len(results) - good,
            }
        )


def _line_of(one: ChildOutcome, size: int) -> dict[str, Any]:
    whole = result_of(one, size)
    return {
        "label": one.label,
        "success": whole["success"],
        "output": whole["output"],
        "duration_ms": one.ending.at - one.started_at,
        "error": whole["error"],
        "tokens_used": one.usage.tokens,
    }


def result_of(one: ChildOutcome, size: int) -> dict[str, Any]:
    """The result object: what came of the task, and facts about it as texts."""
    ending, usage = one.ending, one.usage
    success = ending.state in ("completed", "incomplete") and bool(ending.text)
    output, truncated = cut(ending.text, size, ending.artifacts[-1].path if ending.artifacts else "")
    finished = ending.state == "completed"
    metadata = {
        "subagent_label": one.label,
        "recursion_depth": str(one.depth),
        "completion_status": SUBAGENT[ending.state],
        "turns_used": "2" if finished else "1",
    }
    if ending.stop == "turn_limit":
        metadata |= {"max_turns_reached": "true", "max_turns": str(one.max_turns)}
    if usage.tokens:
        metadata["tokens_used"] = str(usage.tokens)
    if usage.input or usage.output:
        metadata |= {"prompt_tokens": str(usage.input), "completion_tokens": str(usage.output)}
    if not finished:
        metadata["stop_reason"] = ending.stop
    error = None if success else f"Subagent task execution failed: {ending.error or ending.stop}"
    return {"success": success, "output": output, "error": error, "truncated": truncated, "metadata": metadata}


def cut(text: str, size: int, where: str) -> tuple[str, bool]:
    """At most `size` bytes, never half a character; the mark says where the whole is."""
    data = text.encode("utf-8", "replace")
    if len(data) <= size:
        return text, False
    kept = data[:size].decode("utf-8", "ignore")
    whole = f"\n(the whole, {len(data)} bytes, is in artifact {where})" if where else ""
    return f"{kept}{MARK}{whole}", True
