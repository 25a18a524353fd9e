"""`cancel_tasks`: background work that is not wanted any more is really stopped. Cancelling twice
changes nothing. `list_tasks` shows what there is, also of the runs that went before in the same
conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.core.spec import Orders
from retinue.core.state import ending_of
from retinue.core.values import ToolSchema, Value
from retinue.tools.base import Answer, Caller, Kin, Returned
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

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        check_fields(args, Which.__struct_fields__)
        which = self.read(args, Which)
        if not which.group_id and not which.task_ids:
            raise CallComplaint("Give 'group_id', 'task_ids', or both")
        chosen = _choose(await _tasks(caller), which)
        live = [spec for spec, run in chosen if ending_of(run) is None]
        parts = []
        if live:
            parts.append(f"Cancelled: {', '.join(_name(s.order.label) for s in live)}.")
        if ended := [
            f"{_name(s.order.label)} ({STATES[e.state]})"
            for s, run in chosen
            if (e := ending_of(run))
        ]:
            parts.append(f"Already ended: {', '.join(ended)}.")
        text = " ".join(parts)
        if not live:
            return Answer(text=f"Nothing was cancelled. {text}")
        late = (
            "One of these tasks ended just now, so nothing was cancelled. Call cancel_tasks again."
        )
        return Orders(cancels=tuple(s.id for s in live), answer=text, refusals={"cancel": late})


class ListTasks(FamilyTool):
    """The tool that shows them."""

    schema = ToolSchema(
        name=LIST,
        description=LIST_DESCRIPTION,
        parameters=object_schema(
            {"group_id": {"type": "string", "description": "Only this group."}}
        ),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        check_fields(args, ("group_id",))
        chosen = _choose(await _tasks(caller), Which(group_id=self.read(args, Which).group_id))
        groups: dict[tuple[str, str], list[Kin]] = {}
        for spec, run in chosen:
            groups.setdefault((spec.parent, spec.order.group), []).append((spec, run))
        parts = [_listed(group, tasks) for (_, group), tasks in groups.items()]
        return Answer(text="\n\n".join(parts) or "You have not started any task groups.")


def _listed(group: str, tasks: Sequence[Kin]) -> str:
    states = [STATES[e.state] if (e := ending_of(run)) else "running" for _, run in tasks]
    lines = [
        f"- {_name(s.order.label)} {state}" for (s, _), state in zip(tasks, states, strict=True)
    ]
    return "\n".join([f"{group} ({states.count('running')} of {len(tasks)} running)", *lines])


async def _tasks(caller: Caller) -> list[Kin]:
    """The background tasks of this run, oldest first."""
    return [
        (s, r)
        for s, r in await caller.children()
        if s.order.group and s.slot and s.slot.tool == DELEGATE
    ]


def _choose(tasks: Sequence[Kin], which: Which) -> list[Kin]:
    mine = [(s, r) for s, r in tasks if which.group_id in (None, "", s.order.group)]
    if which.group_id and not mine:
        raise CallComplaint(
            f"You have not started a task group '{which.group_id}'. Running: "
            f"{_groups(tasks) or 'none'}"
        )
    if not which.task_ids:
        return mine
    return [_find(mine, id) for id in dict.fromkeys(which.task_ids)]


def _find(tasks: Sequence[Kin], id: str) -> Kin:
    """The task of that name that is at work, or else the last that was."""
    named = [(s, r) for s, r in tasks if s.order.label == id]
    live = [(s, r) for s, r in named if ending_of(r) is None]
    if not named:
        running = ", ".join(_name(s.order.label) for s, r in tasks if ending_of(r) is None)
        raise CallComplaint(f"No background task {_name(id)}. Running: {running or 'none'}")
    if len(live) > 1:
        raise CallComplaint(
            f"Task {_name(id)} is running in several groups: {_groups(live)}. Give 'group_id' too."
        )
    return (live or named)[-1]


def _groups(tasks: Sequence[Kin]) -> str:
    return ", ".join(dict.fromkeys(s.order.group for s, r in tasks if ending_of(r) is None))


def _name(label: str) -> str:
    return f"'{label}'"
