"""Shared by both tools that start sub-agents: checks and requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retinue.core.capabilities import allows
from retinue.core.spec import Actions, RunRequest
from retinue.core.values import NoticeTexts, Permissions, SpawnLimits
from retinue.tools.base import Context, Returned
from retinue.tools.families.base import CallComplaint, FamilyTool, helper_name, level_of, reader_of
from retinue.tools.families.subagent.quota import QuotaSpent
from retinue.tools.families.subagent.subagent_args import MAX_TURNS, SubagentTask
from retinue.tools.families.subagent_settings import SubagentSettings

if TYPE_CHECKING:
    from retinue.tools.families.subagent.subagent_family import SubagentFamily
from retinue.tools.families.subagent.subagent_args import MANY, ONE

READER = "artifact"
"""Reads on where an output was cut; a run that has it can give it in addition to any list."""
SUMMARY = "Summarize your findings concisely: results first, then open points."
ROOM = 40_000
"""Bytes for the outputs of one batch: the results of many tasks fit into one answer together."""


class HelperStarter(FamilyTool):
    """What both tools do: check in the order of the document, then order the children."""

    dialect = starts = "subagent"

    def __init__(self, family: SubagentFamily) -> None:
        self.family = family
        self.settings: SubagentSettings = family.settings
        self.notices = _words(family.settings.max_depth)

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned:
        if why := self.refuses(context):
            raise CallComplaint(why)
        await self.family.quotas.check(context, _spent, self.wanted(args))
        tasks, fields = self.read_tasks(context, args)
        refusals = {"depth": self.too_deep(context)}
        if self.settings.model:
            refusals["model"] = self._no_model(context)
            if self.settings.model not in reader_of(context).models():
                raise CallComplaint(refusals["model"])
        try:
            fields |= await self.family.quotas.take(context, len(tasks))
        except QuotaSpent as spent:
            raise _spent(str(spent)) from None
        return Actions(
            spawns=tuple(self.child_request(context, t, len(tasks), **fields) for t in tasks),
            refusals=refusals,
        )

    def refuses(self, context: Context) -> str:
        """The depth is looked at first, before the arguments are read."""
        return (
            self.too_deep(context) if level_of(context, self) + 1 >= self.settings.max_depth else ""
        )

    def too_deep(self, context: Context) -> str:
        raise NotImplementedError

    def wanted(self, args: dict[str, Any]) -> int:
        """How many sub-agents a call asks for, as far as that can be seen before it is parsed."""
        tasks = args.get("tasks")
        return max(1, len(tasks)) if isinstance(tasks, list) else 1

    def read_tasks(
        self, context: Context, args: dict[str, Any]
    ) -> tuple[Sequence[SubagentTask], dict[str, Any]]:
        """The tasks, checked, and the fields that all their requests share."""
        raise NotImplementedError

    def _no_model(self, context: Context) -> str:
        models = ", ".join(reader_of(context).models())
        return (
            f"Subagent initialization failed: model '{self.settings.model}' cannot be "
            f"used (known: {models})"
        )

    def check(self, task: SubagentTask, known_names: Sequence[str]) -> None:
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
            if name not in known_names:
                raise CallComplaint(f"Unknown tool in allowed_tools: {name}")

    def known_tools(self, context: Context) -> list[str]:
        """What the calling run itself may use: it cannot give more."""
        mine = reader_of(context).tools(helper_name(context.spec.request.agent, self.family.name))
        return [n for n in mine if n not in (ONE, MANY) and allows(_permissions(context), n)]

    def child_request(
        self, context: Context, task: SubagentTask, n: int, **fields: Any
    ) -> RunRequest:
        settings = self.settings
        level = level_of(context, self)
        nests = level + 2 < settings.max_depth
        tools = None
        if task.allowed_tools is not None:
            beside = [t for t in (READER, ONE, MANY) if allows(_permissions(context), t)]
            tools = tuple(sorted({*task.allowed_tools, *beside}))
        options: dict[str, Any] = {
            "label": task.label,
            "join": "call",
            "report": "summary",
            "report_prompt": task.summary_prompt.strip() or SUMMARY,
            "permissions": Permissions(tools=tools, may_spawn=nests),
            "on_unknown_tool": "ignore",
            "limits": SpawnLimits(depth=context.spec.depth - level + settings.max_depth - 1),
            "max_turns": task.max_turns or settings.default_max_turns,
            "grace_turns": 1,
            "model": settings.model,
            "artifact_above_bytes": _room(n, settings.output_max_size),
            "format_results": True,
            **fields,
        }
        return context.request(
            helper_name(context.spec.request.agent, self.family.name), task.task_prompt, **options
        )

    def known(self, args: dict[str, Any], fields: Sequence[str], where: str = "") -> dict[str, Any]:
        """The arguments that say something. One that is not known is named, beside those that
        are."""
        for name in args:
            if name not in fields:
                raise CallComplaint(
                    f"{self.invalid_prefix}: {where}unknown field '{name}'. Known fields: "
                    f"{', '.join(fields)}"
                )
        return {name: value for name, value in args.items() if value is not None}


def _words(most: int) -> NoticeTexts:
    """A run that is too deep gets an error, though it has neither tool."""
    deep = (
        f"Maximum subagent recursion depth ({most}) exceeded. Current depth: {{depth}}. Cannot "
        "spawn nested subagent."
    )
    other = "Tool '{tool}' is not available to this subagent"
    return NoticeTexts(
        refused={ONE: deep, MANY: f"Maximum subagent depth {most} reached", "": other}
    )


def _spent(why: str) -> CallComplaint:
    return CallComplaint(f"Resource quota exceeded: {why}")


def _permissions(context: Context) -> Permissions:
    return context.spec.permissions if context.row.permissions is None else context.row.permissions


def _room(n: int, size: int) -> int:
    """The bytes of output that each of `n` tasks can show."""
    return min(size, max(256, ROOM // n)) if n > 1 else size
