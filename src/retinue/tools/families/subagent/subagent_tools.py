"""`subagent` and `parallel_subagent`: what both check, and how each is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retinue.core.answer_layout import Laid, Sheet
from retinue.core.capabilities import allows
from retinue.core.effects import ChildOutcome
from retinue.core.spec import Lane, Order, Orders
from retinue.core.values import Capabilities, Limits, ToolSchema, Words
from retinue.tools.base import Caller, Returned
from retinue.tools.families.base import (
    CallComplaint,
    FamilyTool,
    helper_name,
    level_of,
    looking,
    object_schema,
)
from retinue.tools.families.subagent.quota import QuotaSpent
from retinue.tools.families.subagent.subagent_args import (
    MAX_CONCURRENT,
    MAX_TURNS,
    ParallelArgs,
    SubagentTask,
    task_schema,
)
from retinue.tools.families.subagent.subagent_result import fail_fast_notice, line_of, result_of
from retinue.tools.families.subagent_settings import SubagentSettings

if TYPE_CHECKING:
    from retinue.tools.families.subagent.subagent_family import SubagentFamily

ONE, MANY = "subagent", "parallel_subagent"
READER = "artifact"
"""Reads on where an output was cut; whoever has it can lend it beside any list."""
SUMMARY = "Summarize your findings concisely: results first, then open points."
ROOM = 40_000
"""Bytes for the outputs of one batch: the results of many tasks fit into one answer together."""


class _Starter(FamilyTool):
    """What both tools do: check in the order of the document, then order the children."""

    dialect = starts = "subagent"

    def __init__(self, family: SubagentFamily) -> None:
        self.family = family
        self.settings: SubagentSettings = family.settings
        self.words = _words(family.settings.max_depth)

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        if why := self.refuses(caller):
            raise CallComplaint(why)
        await self.family.quotas.check(caller, _spent, self.wanted(args))
        tasks, fields = self.asked(caller, args)
        refusals = {"depth": self.too_deep(caller)}
        if self.settings.model:
            refusals["model"] = self._no_model(caller)
            if self.settings.model not in looking(caller).models():
                raise CallComplaint(refusals["model"])
        try:
            fields |= await self.family.quotas.take(caller, len(tasks))
        except QuotaSpent as spent:
            raise _spent(str(spent)) from None
        return Orders(
            spawns=tuple(self.order(caller, t, len(tasks), **fields) for t in tasks),
            refusals=refusals,
        )

    def refuses(self, caller: Caller) -> str:
        """The depth is looked at first, before the arguments are read."""
        return (
            self.too_deep(caller) if level_of(caller, self) + 1 >= self.settings.max_depth else ""
        )

    def too_deep(self, caller: Caller) -> str:
        raise NotImplementedError

    def wanted(self, args: dict[str, Any]) -> int:
        """How many helpers a call asks for, as far as that can be seen before it is read."""
        tasks = args.get("tasks")
        return max(1, len(tasks)) if isinstance(tasks, list) else 1

    def asked(
        self, caller: Caller, args: dict[str, Any]
    ) -> tuple[Sequence[SubagentTask], dict[str, Any]]:
        """The tasks, checked, and what the orders of all of them say."""
        raise NotImplementedError

    def _no_model(self, caller: Caller) -> str:
        known = ", ".join(looking(caller).models())
        return (
            f"Subagent initialization failed: model '{self.settings.model}' cannot be "
            f"used (known: {known})"
        )

    def check(self, task: SubagentTask, known: Sequence[str]) -> None:
        if not task.task_prompt.strip():
            raise CallComplaint("task_prompt cannot be empty")
        if not task.label.strip():
            raise CallComplaint("label cannot be empty")
        if task.max_turns is not None and not 1 <= task.max_turns <= MAX_TURNS:
            raise CallComplaint(f"max_turns must be between 1 and {MAX_TURNS}")
        for name in task.allowed_tools or ():
            if name in (ONE, MANY):
                raise CallComplaint(f"Subagent cannot have '{name}' in allowed_tools")
        for name in task.allowed_tools or ():
            if name not in known:
                raise CallComplaint(f"Unknown tool in allowed_tools: {name}")

    def known_tools(self, caller: Caller) -> list[str]:
        """What the caller itself may use: nobody can lend more."""
        mine = looking(caller).tools(helper_name(caller.spec.order.agent, self.family.name))
        return [n for n in mine if n not in (ONE, MANY) and allows(_held(caller), n)]

    def order(self, caller: Caller, task: SubagentTask, n: int, **fields: Any) -> Order:
        settings = self.settings
        level = level_of(caller, self)
        nests = level + 2 < settings.max_depth
        tools = None
        if task.allowed_tools is not None:
            beside = [t for t in (READER, ONE, MANY) if allows(_held(caller), t)]
            tools = tuple(sorted({*task.allowed_tools, *beside}))
        options: dict[str, Any] = {
            "label": task.label,
            "join": "call",
            "report": "summary",
            "report_prompt": task.summary_prompt.strip() or SUMMARY,
            "access": Capabilities(tools=tools, spawn=nests),
            "unknown_tool": "ignore",
            "limits": Limits(depth=caller.spec.depth - level + settings.max_depth - 1),
            "max_turns": task.max_turns or settings.default_max_turns,
            "grace_turns": 1,
            "model": settings.model,
            "keep_whole": _room(n, settings.output_max_size),
            "compose": True,
            **fields,
        }
        return caller.order(
            helper_name(caller.spec.order.agent, self.family.name), task.task_prompt, **options
        )

    def known(self, args: dict[str, Any], fields: Sequence[str], where: str = "") -> dict[str, Any]:
        """The arguments that say something. One that is not known is named, beside those that
        are."""
        for name in args:
            if name not in fields:
                raise CallComplaint(
                    f"{self.invalid}: {where}unknown field '{name}'. Known fields: "
                    f"{', '.join(fields)}"
                )
        return {name: value for name, value in args.items() if value is not None}


class SubagentTool(_Starter):
    def __init__(self, family: SubagentFamily) -> None:
        super().__init__(family)
        self.schema = ToolSchema(
            name=ONE,
            description=(
                "Give one self-contained task to a sub-agent in its own conversation, "
                "and wait for its summary. It has your tools, or those you list, and "
                "sees only your prompt. Do small tasks yourself."
            ),
            parameters=task_schema(self.settings.default_max_turns),
        )

    def asked(
        self, caller: Caller, args: dict[str, Any]
    ) -> tuple[Sequence[SubagentTask], dict[str, Any]]:
        task = self.read(
            self.known(args, SubagentTask.__struct_fields__), SubagentTask, "allowed_tools"
        )
        self.check(task, self.known_tools(caller))
        return (task,), {}

    def too_deep(self, caller: Caller) -> str:
        return (
            f"Maximum subagent recursion depth ({self.settings.max_depth}) exceeded. "
            f"Current depth: {level_of(caller, self)}. Cannot spawn nested subagent."
        )

    def compose(self, outcomes: Sequence[ChildOutcome]) -> Laid:
        (one,) = outcomes
        self.family.quotas.settled([one.id])
        return Sheet(result_of(one, self.settings.output_max_size, has_quota=self.family.has_quota))


class ParallelTool(_Starter):
    def __init__(self, family: SubagentFamily) -> None:
        super().__init__(family)
        tasks = {
            "type": "array",
            "minItems": 1,
            "items": task_schema(self.settings.default_max_turns),
        }
        self.schema = ToolSchema(
            name=MANY,
            description=(
                "Give independent tasks to several sub-agents at the same time, and wait "
                "for all summaries, in the order of the tasks. With fail_fast the first "
                "failure stops the others. Do small or dependent tasks yourself."
            ),
            parameters=object_schema(
                {
                    "tasks": tasks,
                    "max_concurrent": {
                        "type": "integer",
                        "minimum": 1,
                        "description": (
                            f"How many run at a time ({MAX_CONCURRENT}); the others wait."
                        ),
                    },
                    "fail_fast": {
                        "type": "boolean",
                        "description": "Stop the others when one fails (false).",
                    },
                },
                ("tasks",),
            ),
        )

    def asked(
        self, caller: Caller, args: dict[str, Any]
    ) -> tuple[Sequence[SubagentTask], dict[str, Any]]:
        batch = self._read(args)
        if not batch.tasks:
            raise CallComplaint("At least one task required")
        if batch.max_concurrent < 1:
            raise CallComplaint("max_concurrent must be at least 1")
        known = self.known_tools(caller)
        for n, task in enumerate(batch.tasks):
            try:
                self.check(task, known)
            except CallComplaint as complaint:
                raise CallComplaint(f"tasks[{n}]: {complaint}") from None
        lane = Lane(
            name=f"{MANY} {caller.key}",
            size=min(batch.max_concurrent, len(batch.tasks)),
            scope="tree",
        )
        return batch.tasks, {"lanes": (lane,), "fail_fast": batch.fail_fast}

    def _read(self, args: dict[str, Any]) -> ParallelArgs:
        args = self.known(args, ParallelArgs.__struct_fields__)
        if isinstance(args.get("tasks"), str):
            args["tasks"] = self._unwrap("tasks", args["tasks"])
        if isinstance(args.get("tasks"), list):
            args["tasks"] = [self._read_task(n, task) for n, task in enumerate(args["tasks"])]
        return self.read(args, ParallelArgs)

    def _read_task(self, n: int, task: Any) -> Any:
        if not isinstance(task, dict):
            return task
        task = self.known(task, SubagentTask.__struct_fields__, f"tasks[{n}]: ")
        if isinstance(task.get("allowed_tools"), str):
            task["allowed_tools"] = self._unwrap("allowed_tools", task["allowed_tools"])
        return task

    def too_deep(self, caller: Caller) -> str:
        return f"Maximum subagent depth {self.settings.max_depth} reached"

    def compose(self, outcomes: Sequence[ChildOutcome]) -> Laid:
        self.family.quotas.settled([o.id for o in outcomes])
        size, has_quota = self.settings.output_max_size, self.family.has_quota
        results = [line_of(o, size, has_quota=has_quota) for o in outcomes]
        began = min(o.created_at for o in outcomes)
        good = sum(r["success"] for r in results)
        counts = {
            "total_duration_ms": max(o.ending.at for o in outcomes) - began,
            "successful": good,
            "failed": len(results) - good,
            **fail_fast_notice(outcomes),
        }
        return Sheet(
            {"results": results, **counts},
            "results",
            lambda row: "success" if row["success"] else "failure",
        )


def _words(most: int) -> Words:
    """Whoever is too deep is told so, though it holds neither tool."""
    deep = (
        f"Maximum subagent recursion depth ({most}) exceeded. Current depth: {{depth}}. Cannot "
        "spawn nested subagent."
    )
    other = "Tool '{tool}' is not available to this subagent"
    return Words(refused={ONE: deep, MANY: f"Maximum subagent depth {most} reached", "": other})


def _spent(why: str) -> CallComplaint:
    return CallComplaint(f"Resource quota exceeded: {why}")


def _held(caller: Caller) -> Capabilities:
    return caller.spec.capabilities if caller.run.access is None else caller.run.access


def _room(n: int, size: int) -> int:
    """The bytes of output that each of `n` tasks can show."""
    return min(size, max(256, ROOM // n)) if n > 1 else size
