"""`subagent` and `parallel_subagent`: their checks and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retinue.core.answer_layout import Laid, Sheet
from retinue.core.effects import ChildOutcome
from retinue.core.spec import Lane
from retinue.core.values import ToolSchema
from retinue.tools.base import Context
from retinue.tools.families.base import CallComplaint, level_of, object_schema, writers_note
from retinue.tools.families.subagent.helper_starter import HelperStarter
from retinue.tools.families.subagent.subagent_args import (
    MANY,
    MAX_CONCURRENT,
    ONE,
    ParallelArgs,
    SubagentTask,
    task_schema,
)
from retinue.tools.families.subagent.subagent_result import fail_fast_notice, line_of, result_of

if TYPE_CHECKING:
    from retinue.tools.families.subagent.subagent_family import SubagentFamily


class SubagentTool(HelperStarter):
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

    def read_tasks(
        self, context: Context, args: dict[str, Any]
    ) -> tuple[Sequence[SubagentTask], dict[str, Any]]:
        task = self.read(
            self.known(args, SubagentTask.__struct_fields__), SubagentTask, "allowed_tools"
        )
        self.check(task, self.known_tools(context))
        return (task,), {}

    def too_deep(self, context: Context) -> str:
        return (
            f"Maximum subagent recursion depth ({self.settings.max_depth}) exceeded. "
            f"Current depth: {level_of(context, self)}. Cannot spawn nested subagent."
        )

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> Laid:
        (one,) = outcomes
        self.family.quotas.settled([one.id])
        return Sheet(result_of(one, self.settings.output_max_size, has_quota=self.family.has_quota))


class ParallelTool(HelperStarter):
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
                "failure stops the others. Do small or dependent tasks yourself. "
                + writers_note(self.settings.writers)
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

    def read_tasks(
        self, context: Context, args: dict[str, Any]
    ) -> tuple[Sequence[SubagentTask], dict[str, Any]]:
        batch = self._read(args)
        if not batch.tasks:
            raise CallComplaint("At least one task required")
        if batch.max_concurrent < 1:
            raise CallComplaint("max_concurrent must be at least 1")
        tools = self.known_tools(context)
        for n, task in enumerate(batch.tasks):
            try:
                self.check(task, tools)
            except CallComplaint as complaint:
                raise CallComplaint(f"tasks[{n}]: {complaint}") from None
        lane = Lane(
            name=f"{MANY} {context.key}",
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

    def too_deep(self, context: Context) -> str:
        return f"Maximum subagent depth {self.settings.max_depth} reached"

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> Laid:
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
