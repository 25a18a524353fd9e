"""The official Python client, in the eras that it speaks, against `retinue mcp serve`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Literal

from mcp import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.stdio import StdioServerParameters
from mcp_types import CallToolResult, Request, RequestParams, Result

from tests.cli.private_home import PrivateHome
from tests.waiting import PATIENT

ERAS = ("legacy", "2026-07-28")


class TaskCreated(Result):
    """A call that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None
    status_message: str | None = None


class TaskParams(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskRequest(Request[TaskParams, str]):
    """Any of the methods about tasks."""

    method: str
    params: TaskParams


class TaskReply(Result):
    status: str = ""
    result: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class Tasks(ClientExtension):
    """Polls a task to its end. `answers` are given to forms in their order; `seen` is every
    status."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers, self.seen = list(answers), list[str]()
        self.created: list[TaskCreated] = []

    def claims(self) -> Any:
        return [ResultClaim(result_type="task", model=TaskCreated, resolve=self.resolve)]

    async def resolve(self, created: TaskCreated, context: Any) -> CallToolResult:
        self.created.append(created)
        while True:
            task = await self._ask(context, "tasks/get", task_id=created.task_id)
            self.seen.append(task.status)
            if task.status == "completed":
                return CallToolResult.model_validate(task.result)
            if task.status in ("failed", "cancelled"):
                raise RuntimeError(task.status)
            if task.status == "input_required" and self.answers:
                responses = {next(iter(task.input_requests or {})): self.answers.pop(0)}
                await self._ask(
                    context, "tasks/update", task_id=created.task_id, input_responses=responses
                )
            await asyncio.sleep(0.1)

    async def _ask(self, context: Any, method: str, **params: Any) -> TaskReply:
        request = TaskRequest(method=method, params=TaskParams(**params))
        return await context.session.send_request(request, TaskReply)


def official(home: PrivateHome, mode: str, *flags: str, **options: Any) -> Client:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "retinue", "mcp", "serve", *flags],
        env={**PATIENT, **home.env},
        cwd=home.project,
    )
    return Client(server, mode=mode, **options)
