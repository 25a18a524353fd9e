"""Checks the arguments of `delegate_tasks` in the order and with the texts of the family's
document, then what the document leaves open."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from retinue.core.values import Value
from retinue.tools.families.base import CallComplaint, object_schema
from retinue.tools.families.delegate.delegate_settings import BEYOND, DelegateSettings

MODES = ("parallel", "background")
TOP_FIELDS = ("mode", "tasks")
MAX_ID = 200


class DelegateTask(Value, forbid_unknown_fields=True):
    """One sub-task as the parent wrote it."""

    task_id: str
    prompt: str
    tools: tuple[str, ...]
    context_summary: str = ""
    model: str = ""


def read_call(
    args: dict[str, Any], most: int, beyond: Collection[str] = BEYOND
) -> tuple[str, list[DelegateTask]]:
    """The mode and the tasks, at most `most` of them, with these fields beyond those of the
    document."""
    mode, raw = args.get("mode"), args.get("tasks")
    if not isinstance(mode, str):
        raise CallComplaint("Missing 'mode' parameter")
    if mode not in MODES:
        raise CallComplaint(f"Invalid mode '{mode}'. Must be 'parallel' or 'background'.")
    if not isinstance(raw, list):
        raise CallComplaint("Missing or invalid 'tasks' parameter")
    if not raw:
        raise CallComplaint("'tasks' array cannot be empty")
    for i, task in enumerate(raw):
        _check_required(i, task)
    if len(raw) > most:
        raise CallComplaint(f"Too many sub-tasks: {len(raw)} (max {most})")
    check_fields(args, TOP_FIELDS)
    fields = [f for f in DelegateTask.__struct_fields__ if f not in BEYOND or f in beyond]
    tasks = [_read_task(i, task, fields) for i, task in enumerate(raw)]
    _check_ids(tasks)
    return mode, tasks


def _check_required(i: int, task: Any) -> None:
    fields = task if isinstance(task, dict) else {}
    for name in ("task_id", "prompt"):
        value = fields.get(name)
        if not isinstance(value, str) or not value.strip():
            raise CallComplaint(f"Task {i} missing '{name}'")
    if not isinstance(fields.get("tools"), list):
        raise CallComplaint(f"Task {i} missing 'tools'")


def _read_task(i: int, task: dict[str, Any], fields: Collection[str]) -> DelegateTask:
    check_fields(task, fields, f"Task {i}: ")
    values = {name: value for name, value in task.items() if value is not None}
    values["tools"] = [name for name in task["tools"] if isinstance(name, str)]
    try:
        return msgspec.convert(values, DelegateTask)
    except msgspec.ValidationError as error:
        raise CallComplaint(f"Task {i}: {error}") from None


def _check_ids(tasks: list[DelegateTask]) -> None:
    first: dict[str, int] = {}
    for i, task in enumerate(tasks):
        id = task.task_id
        if not id.isprintable() or len(id) > MAX_ID:
            raise CallComplaint(
                f"Task {i}: 'task_id' must be one line of at most {MAX_ID} characters"
            )
        if id in first:
            raise CallComplaint(
                f"Duplicate task_id '{id}': tasks {first[id]} and {i}. Give each task its own id."
            )
        first[id] = i


def check_fields(fields: dict[str, Any], known_names: Collection[str], where: str = "") -> None:
    for name in fields:
        if name not in known_names:
            raise CallComplaint(
                f"{where}unknown field '{name}'. Known fields: {', '.join(known_names)}"
            )


_BEYOND = {"model": "Model for this task instead of yours."}


def task_parameters(s: DelegateSettings) -> dict[str, Any]:
    text = {"type": "string"}
    task = object_schema(
        {
            "task_id": {
                **text,
                "description": "A short name, used in results; must be unique within the call.",
            },
            "prompt": {**text, "description": "The complete task."},
            "context_summary": {
                **text,
                "description": "What the sub-agent must know of this conversation.",
            },
            "tools": {
                "type": "array",
                "items": text,
                "description": "Names of your tools that the sub-agent may use. An empty "
                "list means none.",
            },
            **{name: {**text, "description": _BEYOND[name]} for name in s.task_fields},
        },
        ("task_id", "prompt", "tools"),
    )
    modes = {
        **text,
        "enum": list(MODES),
        "description": "parallel waits for all results; background does not.",
    }
    tasks = {"type": "array", "items": task, "minItems": 1, "maxItems": s.max_subtasks_per_request}
    return object_schema({"mode": modes, "tasks": tasks}, ("mode", "tasks"))
