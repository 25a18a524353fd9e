"""`cancel_tasks`: stops background work. Cancelling twice changes nothing. `list_tasks` shows what
there is, also of the runs that went before in the same conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.core.spec import Actions
from retinue.core.state import RunRecord, ending_of
from retinue.core.values import ToolSchema, Value
from retinue.tools.base import Context, Returned, ToolResult
from retinue.tools.families.base import CallComplaint, FamilyTool, object_schema
from retinue.tools.families.delegate.delegate_texts import CANCEL_DESCRIPTION, LIST_DESCRIPTION
from retinue.tools.families.delegate.task_arguments import check_fields
from retinue.tools.families.family_states import DELEGATE as STATES

DELEGATE, CANCEL, LIST = "delegate_tasks", "cancel_tasks", "list_tasks"


class Which(Value, forbid_unknown_fields=True):
    """A group, some tasks of it, or tasks whose group need not be named."""

    group_id: str | None = None
    task_ids: tuple[str, ...] | None = None


class CancelTasks(FamilyTool):
    """The tool that stops them."""

    schema = ToolSchema(
        name=CANCEL,
        description=CANCEL_DESCRIPTION,
        parameters=object_schema(
            {
                "group_id": {
                    "type": "string",
                    "description": "The group id from the answer of delegate_tasks.",
                },
                "task_ids": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Only these tasks; without group_id, in any group.",
                },
            }
        ),
    )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned:
        check_fields(args, Which.__struct_fields__)
        which = self.read(args, Which)
        if not which.group_id and not which.task_ids:
            raise CallComplaint("Give 'group_id', 'task_ids', or both")
        tasks = _choose(await _tasks(context), which)
        live = [spec for spec, run in tasks if ending_of(run) is None]
        parts = []
        if live:
            parts.append(f"Cancelled: {', '.join(_name(s.request.label) for s in live)}.")
        if ended := [
            f"{_name(s.request.label)} ({STATES[e.state]})"
            for s, run in tasks
            if (e := ending_of(run))
        ]:
            parts.append(f"Already ended: {', '.join(ended)}.")
        text = " ".join(parts)
        if not live:
            return ToolResult(text=f"Nothing was cancelled. {text}")
        late = (
            "One of these tasks ended just now, so nothing was cancelled. Call cancel_tasks again."
        )
        return Actions(cancels=tuple(s.id for s in live), answer=text, refusals={"cancel": late})


class ListTasks(FamilyTool):
    """The tool that shows them."""

    schema = ToolSchema(
        name=LIST,
        description=LIST_DESCRIPTION,
        parameters=object_schema(
            {"group_id": {"type": "string", "description": "Only this group."}}
        ),
    )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned:
        check_fields(args, ("group_id",))
        choice = _choose(await _tasks(context), Which(group_id=self.read(args, Which).group_id))
        groups: dict[tuple[str, str], list[RunRecord]] = {}
        for record in choice:
            key = (record.spec.parent, record.spec.request.group)
            groups.setdefault(key, []).append(record)
        parts = [_listed(group, tasks) for (_, group), tasks in groups.items()]
        return ToolResult(text="\n\n".join(parts) or "You have not started any task groups.")


def _listed(group: str, tasks: Sequence[RunRecord]) -> str:
    states = [STATES[e.state] if (e := ending_of(run)) else "running" for _, run in tasks]
    lines = [
        f"- {_name(s.request.label)} {state}" for (s, _), state in zip(tasks, states, strict=True)
    ]
    return "\n".join([f"{group} ({states.count('running')} of {len(tasks)} running)", *lines])


async def _tasks(context: Context) -> list[RunRecord]:
    """The background tasks of this run, oldest first."""
    return [
        task
        for task in await context.children()
        if (s := task.spec).request.group and s.parent_call and s.parent_call.tool == DELEGATE
    ]


def _choose(tasks: Sequence[RunRecord], which: Which) -> list[RunRecord]:
    mine = [task for task in tasks if which.group_id in (None, "", task.spec.request.group)]
    if which.group_id and not mine:
        raise CallComplaint(
            f"You have not started a task group '{which.group_id}'. Running: "
            f"{_groups(tasks) or 'none'}"
        )
    if not which.task_ids:
        return mine
    return [_find(mine, id) for id in dict.fromkeys(which.task_ids)]


def _find(tasks: Sequence[RunRecord], id: str) -> RunRecord:
    """The task of that name that is at work, or else the last that was."""
    named = [task for task in tasks if task.spec.request.label == id]
    live = [task for task in named if ending_of(task.run) is None]
    if not named:
        running = ", ".join(_name(s.request.label) for s, r in tasks if ending_of(r) is None)
        raise CallComplaint(f"No background task {_name(id)}. Running: {running or 'none'}")
    if len(live) > 1:
        raise CallComplaint(
            f"Task {_name(id)} is running in several groups: {_groups(live)}. Give 'group_id' too."
        )
    return (live or named)[-1]


def _groups(tasks: Sequence[RunRecord]) -> str:
    return ", ".join(dict.fromkeys(s.request.group for s, r in tasks if ending_of(r) is None))


def _name(label: str) -> str:
    return f"'{label}'"
