"""Runs as A2A tasks, built from the record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from retinue.core.messages import AssistantMessage, Message, UserMessage
from retinue.outcomes import Outcome

CONTEXT = "a2a.context"
"""Under this name a run remembers the context that it belongs to."""
SUBMITTED = "TASK_STATE_SUBMITTED"
WORKING = "TASK_STATE_WORKING"
INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
ENDS = {
    "completed": "TASK_STATE_COMPLETED",
    "cancelled": "TASK_STATE_CANCELED",
    "failed": "TASK_STATE_FAILED",
    "timed_out": "TASK_STATE_FAILED",
    "interrupted": "TASK_STATE_FAILED",
    "incomplete": "TASK_STATE_FAILED",
}
TERMINAL = frozenset(ENDS.values())
STATES = {SUBMITTED, WORKING, INPUT_REQUIRED, AUTH_REQUIRED, "TASK_STATE_REJECTED", *TERMINAL}
RESULT = "result"
MISSING = "missing"
"""The artifact in which the runtime says which sub-agents of a result never returned."""


def moment(ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def state_of(word: str, *, is_asked: bool, is_undecided: bool) -> str:
    """The state of a task, for one of a run. `is_asked`: it waits for words of the client. What is
    `is_undecided`, a permission or a limit that asks, has a state of its own: someone else
    decides."""
    if word in ENDS:
        return ENDS[word]
    if is_asked:
        return INPUT_REQUIRED
    if is_undecided:
        return AUTH_REQUIRED
    return SUBMITTED if word == "queued" else WORKING


def agent_message(task: str, context: str, id: str, text: str) -> dict[str, Any]:
    return _message(task, context, id, "ROLE_AGENT", text)


def _message(task: str, context: str, id: str, role: str, text: str) -> dict[str, Any]:
    where = {"messageId": id, "contextId": context, "taskId": task}
    return {**where, "role": role, "parts": [{"text": text, "mediaType": "text/plain"}]}


def history(
    task: str, context: str, messages: Sequence[Message], first: int, most: int | None
) -> list[dict[str, Any]]:
    """What client and agent have said, the newest `most`; calls and their results are the agent's
    own business."""
    out = []
    for n, message in enumerate(messages, first):
        role = ""
        if isinstance(message, UserMessage) and message.kind in ("task", "mail"):
            role = "ROLE_USER"
        elif isinstance(message, AssistantMessage):
            role = "ROLE_AGENT"
        if role and message.text:
            out.append(_message(task, context, f"{task}-{n}", role, message.text))
    if most is None:
        return out
    return out[-most:] if most else []


def artifacts(outcome: Outcome | None) -> list[dict[str, Any]]:
    """The result, and what the runtime says about it."""
    if outcome is None:
        return []
    texts = {RESULT: outcome.text, MISSING: outcome.note}
    return [_artifact(name, text) for name, text in texts.items() if text]


def _artifact(name: str, text: str) -> dict[str, Any]:
    parts = [{"text": text, "mediaType": "text/plain"}]
    return {"artifactId": name, "name": name, "parts": parts}


def status(state: str, at: int, message: dict[str, Any] | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = {"state": state, "timestamp": moment(at)}
    return {**fields, "message": message} if message is not None else fields


def status_update(task: str, context: str, now: dict[str, Any]) -> dict[str, Any]:
    return {"statusUpdate": {"taskId": task, "contextId": context, "status": now}}


def artifact_update(task: str, context: str, artifact: dict[str, Any]) -> dict[str, Any]:
    where = {"taskId": task, "contextId": context}
    return {"artifactUpdate": {**where, "artifact": artifact, "lastChunk": True}}
