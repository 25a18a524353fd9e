"""Tasks, of both eras: as the extension of 2026-07-28 and as a part of 2025-11-25. What a task is,
a `TaskSource` knows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from retinue.mcp import rpc_messages as rpc
from retinue.mcp.protocol_versions import PREFIX, ClientFacts
from retinue.mcp.rpc_messages import RpcError
from retinue.mcp.rpc_server import Method, RpcCall

POLL_MS = 1_000
RELATED = f"{PREFIX}related-task"
ENDS = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class TaskState:
    """A task at this moment. `requests` are input requests by their keys. Times are milliseconds
    since 1970."""

    id: str
    status: str
    message: str = ""
    created_at: int = 0
    updated_at: int = 0
    result: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)


class TaskSource(Protocol):
    async def find(self, id: str, client: ClientFacts) -> TaskState | None:
        """None for an id that is not one of this client's."""

    async def update(self, id: str, responses: dict[str, Any], client: ClientFacts) -> None: ...

    async def cancel(self, id: str) -> None: ...


def created_task(state: TaskState, client: ClientFacts) -> dict[str, Any]:
    """The result of a call that became a task."""
    if client.is_stateless:
        return {"resultType": "task", **task_fields(state)}
    return {"task": old_task_fields(state)}


def task_fields(state: TaskState) -> dict[str, Any]:
    out = _common(state) | {"ttlMs": None, "pollIntervalMs": POLL_MS}
    match state.status:
        case "completed":
            out["result"] = {"resultType": "complete", **state.result}
        case "failed":
            out["error"] = state.error
        case "input_required":
            out["inputRequests"] = state.requests
    return out


def old_task_fields(state: TaskState) -> dict[str, Any]:
    return _common(state) | {"ttl": None, "pollInterval": POLL_MS}


def _common(state: TaskState) -> dict[str, Any]:
    out = {
        "taskId": state.id,
        "status": state.status,
        "createdAt": _time(state.created_at),
        "lastUpdatedAt": _time(max(state.created_at, state.updated_at)),
    }
    return out | ({"statusMessage": state.message} if state.message else {})


def _time(ms: int) -> str:
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


class TaskMethods:
    """The methods about tasks."""

    def __init__(self, source: TaskSource) -> None:
        self._source = source
        self.methods: dict[str, Method] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
            "tasks/result": self._result,
        }

    async def _find(self, call: RpcCall) -> TaskState:
        if call.client.is_stateless:
            call.client.need_tasks()
        elif not call.client.has_old_tasks:
            text = f"Method {call.request.method!r} not found in this version."
            raise RpcError(rpc.METHOD_NOT_FOUND, text)
        id = call.text_param("taskId")
        named = call.headers.get("mcp-name")
        if named is not None and named != id:
            raise RpcError(rpc.HEADER_MISMATCH, "The header Mcp-Name is not params.taskId.")
        state = await self._source.find(id, call.client)
        if state is None:
            raise RpcError(rpc.INVALID_PARAMS, "Task not found.")
        return state

    async def _get(self, call: RpcCall) -> dict[str, Any]:
        state = await self._find(call)
        return task_fields(state) if call.client.is_stateless else old_task_fields(state)

    async def _update(self, call: RpcCall) -> dict[str, Any]:
        if not call.client.is_stateless:
            raise RpcError(rpc.METHOD_NOT_FOUND, "Method 'tasks/update' not found in this version.")
        state = await self._find(call)
        responses = call.params.get("inputResponses")
        if not isinstance(responses, dict):
            raise RpcError(rpc.INVALID_PARAMS, "tasks/update needs inputResponses, an object.")
        await self._source.update(state.id, responses, call.client)
        return {}

    async def _cancel(self, call: RpcCall) -> dict[str, Any]:
        state = await self._find(call)
        if call.client.is_stateless:
            if state.status not in ENDS:
                await self._source.cancel(state.id)
            return {}
        if state.status in ENDS:
            raise RpcError(rpc.INVALID_PARAMS, f"The task has ended: {state.status}.")
        await self._source.cancel(state.id)
        after = await self._source.find(state.id, call.client)
        assert after is not None
        return old_task_fields(after)

    async def _result(self, call: RpcCall) -> dict[str, Any]:
        """Of 2025-11-25: waits for the end; what is asked meanwhile, the client's user is asked."""
        if call.client.is_stateless:
            raise RpcError(rpc.METHOD_NOT_FOUND, "Method 'tasks/result' not found in this version.")
        asked_ids: set[str] = set()
        while (state := await self._find(call)).status not in ENDS:
            new = [key for key in state.requests if key not in asked_ids]
            if not new:
                await asyncio.sleep(POLL_MS / 1000)
                continue
            asked_ids.add(new[0])
            params = {**state.requests[new[0]]["params"], "_meta": {RELATED: {"taskId": state.id}}}
            try:
                response = await call.ask_client("elicitation/create", params)
                await self._source.update(state.id, {new[0]: response}, call.client)
            except RpcError:
                continue  # it stays open, and can be answered in other ways
        if state.status == "failed":
            raise RpcError(state.error["code"], state.error["message"])
        result = state.result or {"content": [], "isError": True}
        return {**result, "_meta": {RELATED: {"taskId": state.id}}}
