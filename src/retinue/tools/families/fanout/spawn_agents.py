"""`spawn_agents`: runs several tasks in parallel, each with its own agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from retinue.core import capabilities
from retinue.core.answer_layout import Laid, Long, Sheet
from retinue.core.effects import ChildOutcome
from retinue.core.spec import Actions, History, Retry, RunRequest
from retinue.core.values import NoticeTexts, Permissions, ToolSchema
from retinue.tools.base import Context, Returned, Tool
from retinue.tools.families.base import (
    CallComplaint,
    FamilyTool,
    helper_name,
    reader_of,
    writers_note,
)
from retinue.tools.families.child_directory import directory
from retinue.tools.families.fanout.fanout_args import FanoutTask, SpawnAgentsArgs
from retinue.tools.families.fanout.fanout_outcome import outcome_of
from retinue.tools.families.fanout.fanout_settings import BEYOND, FanoutSettings
from retinue.tools.families.fanout.fanout_texts import (
    DESCRIPTION,
    EMPTY,
    LOOKS,
    MODES,
    NO_TOOLS,
    NOT_THE_LEADS,
    WRITES,
    child_instructions,
    parameters,
)
from retinue.tools.families.fanout.task_files import contents

NAME = "fanout"
SAFE_RISKS = ("read", "network")
LABEL = 60


class SpawnAgents(FamilyTool):
    """What it checks itself is checked for its words and their order; the machine checks the limits
    again."""

    invalid_prefix = "Invalid input"
    dialect = starts = NAME
    notices = NoticeTexts(
        elsewhere="Spawning {count} sub-agent(s): {ids}. All results of this turn are together in "
        "the answer to call {call}.",
        refused={"": "The tool '{tool}' is not available to this sub-agent."},
    )

    def __init__(self, settings: FanoutSettings) -> None:
        self.settings = settings
        self.schema = ToolSchema(
            name="spawn_agents",
            description=f"{DESCRIPTION} {writers_note(settings.writers)}",
            parameters=parameters(settings),
        )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned:
        tasks = self._tasks(args)
        _check_writers(context, tasks)
        models = [self._model(context, n, task) for n, task in enumerate(tasks)]
        explorer = (
            self._explorer(context)
            if self.settings.has_modes and not all(t.writes for t in tasks)
            else None
        )
        places = await asyncio.to_thread(self._places, context, tasks)
        spawns = tuple(
            self._child_request(context, n, task, explorer, models[n], *places[n])
            for n, task in enumerate(tasks)
        )
        return Actions(spawns=spawns, refusals={"tools": NO_TOOLS})

    def _tasks(self, args: dict[str, Any]) -> tuple[FanoutTask, ...]:
        try:
            tasks = self.read(args, SpawnAgentsArgs, "tasks").tasks
        except CallComplaint as complaint:
            raise CallComplaint(f"{complaint}{self._hint(str(complaint))}") from None
        for n, task in enumerate(tasks):
            for name in BEYOND:
                if name not in self.settings.task_fields and getattr(task, name) is not None:
                    raise CallComplaint(
                        f"{self.invalid_prefix}: unknown field `{name}` - at `$.tasks[{n}]`. Known "
                        f"fields: {self._known()}"
                    )
            if not task.task.strip():
                raise CallComplaint(
                    f"{self.invalid_prefix}: the task is empty - at `$.tasks[{n}].task`"
                )
            if len(task.read_first or ()) > self.settings.read_first_files:
                most = self.settings.read_first_files
                raise CallComplaint(
                    f"{self.invalid_prefix}: at most {most} files in read_first - at "
                    f"`$.tasks[{n}].read_first`"
                )
        if not tasks:
            raise CallComplaint(EMPTY)
        if len(tasks) > self.settings.max_tasks:
            raise CallComplaint(
                f"At most {self.settings.max_tasks} tasks in one call, not {len(tasks)}"
            )
        return tasks

    def _known(self) -> str:
        return ", ".join(
            f
            for f in FanoutTask.__struct_fields__
            if f not in BEYOND or f in self.settings.task_fields
        )

    def _hint(self, complaint: str) -> str:
        """What could have been written instead."""
        if "unknown field" in complaint:
            names = (
                self._known()
                if "$.tasks" in complaint
                else ", ".join(SpawnAgentsArgs.__struct_fields__)
            )
            return f". Known fields: {names}"
        return f". Known modes: {', '.join(MODES)}" if "enum value" in complaint else ""

    def _model(self, context: Context, n: int, task: FanoutTask) -> str:
        """The name of the child's model; "" is the parent's own."""
        explores = self.settings.has_modes and not task.writes
        name = task.model or (self.settings.explore_model if explores else "")
        allowed = _permissions(context).models
        models = [m for m in reader_of(context).models() if allowed is None or m in allowed]
        if name and name not in models:
            raise CallComplaint(
                f"tasks[{n}]: unknown model {name!r}. Available models: "
                f"{', '.join(models) or 'none'}"
            )
        return name

    def _explorer(self, context: Context) -> tuple[str, ...]:
        """The tools of an explorer: those that only look."""
        permissions = _permissions(context)
        tools = reader_of(context).tools(helper_name(context.spec.request.agent, NAME))
        mine = [
            name
            for name in tools
            if name not in NOT_THE_LEADS and capabilities.allows(permissions, name)
        ]
        safe = {
            name for name in mine if _only_looks(tools[name]) or name in self.settings.explore_tools
        }
        if mine and not safe:
            raise CallComplaint(
                "Nothing was started: explore tasks get only tools that read or use the "
                f"network, and you have none ({', '.join(mine)}). Use mode 'work' for one "
                "task, or do the tasks yourself. (To fix this in the setup: declare the "
                "tool's risk, or list it in `explore_tools`.)"
            )
        return tuple(sorted(safe | (NOT_THE_LEADS & set(tools))))

    def _places(self, context: Context, tasks: Sequence[FanoutTask]) -> list[tuple[str, str]]:
        """For each task its directory and what is read to it first. Touches the disk."""
        cwds = [directory(context, task.cwd, f"tasks[{n}].") for n, task in enumerate(tasks)]
        cap = self.settings.read_first_bytes
        return [
            (
                cwd,
                contents(
                    context, cwd, task.read_first or (), cap, f"tasks[{n}]", f"{context.key}/{n}"
                ),
            )
            for n, (task, cwd) in enumerate(zip(tasks, cwds, strict=True))
        ]

    def _child_request(
        self,
        context: Context,
        n: int,
        task: FanoutTask,
        explorer: tuple[str, ...] | None,
        model: str,
        cwd: str,
        files: str,
    ) -> RunRequest:
        settings = self.settings
        explores = settings.has_modes and not task.writes
        mode = LOOKS if explores else WRITES
        access = Permissions(may_spawn=False)
        if explores:
            access = Permissions(tools=explorer, write=(), may_spawn=False)
        return context.request(
            helper_name(context.spec.request.agent, NAME),
            task.task,
            label=" ".join(task.task.split())[:LABEL],
            join="turn",
            result_order="completion",
            format_results=True,
            report="submit",
            history=History(kind="summary", text=files) if files else History(),
            aggregate=settings.aggregate,
            while_waiting=settings.while_waiting,
            mixed_submit="fail" if settings.strict else "ask",
            instructions=child_instructions(mode if settings.has_modes else "", cwd),
            on_unknown_tool="ignore",
            model=model,
            cwd=cwd,
            max_turns=task.max_turns
            or (settings.explore_turns if explores else settings.work_turns),
            grace_turns=settings.grace_turns,
            timeout_ms=round(settings.timeout_seconds * 1_000),
            timeout_from="created",
            retry=Retry(attempts=settings.attempts, base_ms=1_000, cap_ms=4_000, then="fail"),
            on_parent_end="wait",
            on_restart=settings.on_restart,
            permissions=access,
        )

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> Laid:
        results = [
            {"agent_id": o.id, "task": Long(o.task), "outcome": outcome_of(o.ending)}
            for o in outcomes
        ]
        return Sheet(
            {"sub_agent_results": results},
            "sub_agent_results",
            lambda row: next(iter(row["outcome"])),
        )


def _permissions(context: Context) -> Permissions:
    return context.spec.permissions if context.row.permissions is None else context.row.permissions


def _only_looks(tool: Tool) -> bool:
    return getattr(tool, "risk", "execute") in SAFE_RISKS


def _check_writers(context: Context, tasks: Sequence[FanoutTask]) -> None:
    for n, task in enumerate(tasks):
        if task.writes and _permissions(context).write == ():
            raise CallComplaint(
                f"tasks[{n}] has mode 'work', but you cannot write yourself. Use mode 'explore'"
            )
