"""`spawn_agents`: several tasks at once, each to an agent of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from retinue.core import capabilities as policy
from retinue.core.answer_layout import Laid, Long, Sheet
from retinue.core.effects import ChildOutcome
from retinue.core.spec import Context, Order, Orders, Retry
from retinue.core.state import ending_of
from retinue.core.values import Capabilities, Limits, ToolSchema, Words
from retinue.tools.base import Caller, Returned, Tool
from retinue.tools.families.base import CallComplaint, FamilyTool, helper_name, looking
from retinue.tools.families.child_directory import directory
from retinue.tools.families.fanout.fanout_args import WORK, FanoutTask, SpawnAgentsArgs
from retinue.tools.families.fanout.fanout_outcome import outcome_of
from retinue.tools.families.fanout.fanout_settings import BEYOND, FanoutSettings
from retinue.tools.families.fanout.fanout_texts import (
    DESCRIPTION,
    EMPTY,
    LOOKS,
    MODES,
    NO_TOOLS,
    NOT_THE_LEADS,
    TWO_WRITERS,
    WORK_ACTIVE,
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

    invalid = "Invalid input"
    dialect = starts = NAME
    words = Words(
        elsewhere="Spawning {count} sub-agent(s): {ids}. All results of this turn are together in "
        "the answer to call {call}.",
        refused={"": "The tool '{tool}' is not available to this sub-agent."},
    )

    def __init__(self, settings: FanoutSettings) -> None:
        self.settings = settings
        self.schema = ToolSchema(
            name="spawn_agents", description=DESCRIPTION, parameters=parameters(settings)
        )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        tasks = self._tasks(args)
        await self._check_writers(caller, tasks)
        models = [self._model(caller, n, task) for n, task in enumerate(tasks)]
        explorer = (
            self._explorer(caller)
            if self.settings.has_modes and not all(t.writes for t in tasks)
            else None
        )
        places = await asyncio.to_thread(self._places, caller, tasks)
        spawns = tuple(
            self._order(caller, n, task, explorer, models[n], *places[n])
            for n, task in enumerate(tasks)
        )
        return Orders(spawns=spawns, refusals={"groups": WORK_ACTIVE, "tools": NO_TOOLS})

    def _tasks(self, args: dict[str, Any]) -> tuple[FanoutTask, ...]:
        try:
            tasks = self.read(args, SpawnAgentsArgs, "tasks").tasks
        except CallComplaint as complaint:
            raise CallComplaint(f"{complaint}{self._hint(str(complaint))}") from None
        for n, task in enumerate(tasks):
            for name in BEYOND:
                if name not in self.settings.task_fields and getattr(task, name) is not None:
                    raise CallComplaint(
                        f"{self.invalid}: unknown field `{name}` - at `$.tasks[{n}]`. Known "
                        f"fields: {self._known()}"
                    )
            if not task.task.strip():
                raise CallComplaint(f"{self.invalid}: the task is empty - at `$.tasks[{n}].task`")
            if len(task.read_first or ()) > self.settings.read_first_files:
                most = self.settings.read_first_files
                raise CallComplaint(
                    f"{self.invalid}: at most {most} files in read_first - at "
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
            known = (
                self._known()
                if "$.tasks" in complaint
                else ", ".join(SpawnAgentsArgs.__struct_fields__)
            )
            return f". Known fields: {known}"
        return f". Known modes: {', '.join(MODES)}" if "enum value" in complaint else ""

    async def _check_writers(self, caller: Caller, tasks: Sequence[FanoutTask]) -> None:
        for n, task in enumerate(tasks):
            if task.writes and _held(caller).write == ():
                raise CallComplaint(
                    f"tasks[{n}] has mode 'work', but you cannot write yourself. Use mode 'explore'"
                )
        writers = sum(t.writes for t in tasks)
        if writers > 1:
            raise CallComplaint(TWO_WRITERS)
        if writers and any(
            s.order.group_kind == WORK and not ending_of(r) for s, r in await caller.children()
        ):
            raise CallComplaint(WORK_ACTIVE)

    def _model(self, caller: Caller, n: int, task: FanoutTask) -> str:
        """The name of the child's model; "" is the parent's own."""
        explores = self.settings.has_modes and not task.writes
        name = task.model or (self.settings.explore_model if explores else "")
        allowed = _held(caller).models
        known = [m for m in looking(caller).models() if allowed is None or m in allowed]
        if name and name not in known:
            raise CallComplaint(
                f"tasks[{n}]: unknown model {name!r}. Available models: "
                f"{', '.join(known) or 'none'}"
            )
        return name

    def _explorer(self, caller: Caller) -> tuple[str, ...]:
        """The tools of an explorer: those that only look."""
        held = _held(caller)
        tools = looking(caller).tools(helper_name(caller.spec.order.agent, NAME))
        mine = [name for name in tools if name not in NOT_THE_LEADS and policy.allows(held, name)]
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

    def _places(self, caller: Caller, tasks: Sequence[FanoutTask]) -> list[tuple[str, str]]:
        """For each task its directory and what is read to it first. Touches the disk."""
        cwds = [directory(caller, task.cwd, f"tasks[{n}].") for n, task in enumerate(tasks)]
        cap = self.settings.read_first_bytes
        return [
            (
                cwd,
                contents(
                    caller, cwd, task.read_first or (), cap, f"tasks[{n}]", f"{caller.key}/{n}"
                ),
            )
            for n, (task, cwd) in enumerate(zip(tasks, cwds, strict=True))
        ]

    def _order(
        self,
        caller: Caller,
        n: int,
        task: FanoutTask,
        explorer: tuple[str, ...] | None,
        model: str,
        cwd: str,
        files: str,
    ) -> Order:
        settings = self.settings
        explores = settings.has_modes and not task.writes
        mode: dict[str, Any] = {"access": Capabilities(spawn=False)}
        if explores:
            mode = {"access": Capabilities(tools=explorer, write=(), spawn=False)}
        elif settings.has_modes:
            mode = {
                "access": Capabilities(spawn=False),
                "limits": Limits(groups=1),
                "group": caller.child_id(n),
                "group_kind": WORK,
            }
        return caller.order(
            helper_name(caller.spec.order.agent, NAME),
            task.task,
            label=" ".join(task.task.split())[:LABEL],
            join="turn",
            results="completion",
            compose=True,
            report="submit",
            context=Context(kind="summary", text=files) if files else Context(),
            aggregate=settings.aggregate,
            while_waiting=settings.while_waiting,
            mixed_submit="fail" if settings.strict else "ask",
            instructions=child_instructions(
                (LOOKS if explores else WRITES) if settings.has_modes else "", cwd
            ),
            unknown_tool="ignore",
            model=model,
            cwd=cwd,
            max_turns=task.max_turns
            or (settings.explore_turns if explores else settings.work_turns),
            grace_turns=settings.grace_turns,
            timeout_ms=round(settings.timeout_seconds * 1_000),
            clock="created",
            retry=Retry(attempts=settings.attempts, base_ms=1_000, cap_ms=4_000, then="fail"),
            bond="wait",
            on_restart=settings.on_restart,
            **mode,
        )

    def compose(self, outcomes: Sequence[ChildOutcome]) -> Laid:
        results = [
            {"agent_id": o.id, "task": Long(o.task), "outcome": outcome_of(o.ending)}
            for o in outcomes
        ]
        return Sheet(
            {"sub_agent_results": results},
            "sub_agent_results",
            lambda row: next(iter(row["outcome"])),
        )


def _held(caller: Caller) -> Capabilities:
    return caller.spec.capabilities if caller.run.access is None else caller.run.access


def _only_looks(tool: Tool) -> bool:
    return getattr(tool, "risk", "execute") in SAFE_RISKS
