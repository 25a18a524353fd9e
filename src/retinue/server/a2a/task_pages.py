"""Lists tasks by pages, the last changed first. A page is named by the task before it."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any

from retinue.server.a2a import task_objects as objects
from retinue.server.a2a.a2a_errors import INVALID_PARAMS, A2aError
from retinue.server.a2a.a2a_requests import ListParams
from retinue.server.a2a.agent_tasks import AgentTasks

PAGE = 50


async def list_tasks(tasks: AgentTasks, params: ListParams) -> dict[str, Any]:
    if params.status is not None and params.status not in objects.STATES:
        raise A2aError(INVALID_PARAMS, f"Unknown status {params.status[:80]!r}.")
    since, size = _since(params), params.page_size or PAGE
    places = await _places(tasks, params, since)
    matches = []
    for place in places:
        if params.status is None or await _state(tasks, place[1]) == params.status:
            matches.append(place)
    after = _read_token(params.page_token or "")
    rest = [place for place in matches if after is None or place < after]
    page = rest[:size]
    is_last = len(rest) <= size
    tasks_shown = [
        await tasks.task(
            id, params.history_length or 0, has_artifacts=bool(params.include_artifacts)
        )
        for _, id in page
    ]
    return {
        "tasks": tasks_shown,
        "nextPageToken": "" if is_last else _token(page[-1]),
        "pageSize": size,
        "totalSize": len(matches),
    }


async def _places(tasks: AgentTasks, params: ListParams, since: int) -> list[tuple[int, str]]:
    """When each task has changed, and its id; the newest first."""
    meta = {objects.CONTEXT: params.context_id} if params.context_id else {}
    lines = await tasks.host.runs_with(meta, tasks.who)
    places = [
        (line.ended_at or line.created_at, line.id)
        for line in lines
        if objects.CONTEXT in line.meta
    ]
    return sorted((place for place in places if place[0] >= since), reverse=True)


async def _state(tasks: AgentTasks, id: str) -> str:
    task = await tasks.task(id, 0, has_artifacts=False)
    return str(task["status"]["state"])


def _since(params: ListParams) -> int:
    text = params.status_timestamp_after
    if not text:
        return 0
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise A2aError(INVALID_PARAMS, "statusTimestampAfter is not a time.") from None


def _token(place: tuple[int, str]) -> str:
    return base64.urlsafe_b64encode(f"{place[0]} {place[1]}".encode()).decode()


def _read_token(token: str) -> tuple[int, str] | None:
    if not token:
        return None
    try:
        at, _, id = base64.urlsafe_b64decode(token.encode()).decode().partition(" ")
        return int(at), id
    except (ValueError, binascii.Error):
        raise A2aError(INVALID_PARAMS, "pageToken is not one of ours.") from None
