"""Tasks that the conformance suite asks for, kept in memory: the protocol around them is ours."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from retinue.mcp.protocol_versions import ClientFacts
from retinue.mcp.rpc_messages import RpcError
from retinue.mcp.task_methods import TaskState


def now() -> int:
    return int(time.time() * 1000)


def text_result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False, **more}


def form(message: str, **fields: str) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields)}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


@dataclass(eq=False)
class FixtureTask:
    """One task and its work. `ask` waits for what the client answers."""

    id: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    made: int = field(default_factory=now)
    status: str = "working"
    result: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, tuple[dict[str, Any], asyncio.Future[Any]]] = field(default_factory=dict)
    job: asyncio.Task[None] | None = None

    async def ask(self, request: dict[str, Any]) -> Any:
        key, future = secrets.token_hex(4), asyncio.get_running_loop().create_future()
        self.asked[key] = (request, future)
        return await future

    async def run(self, work: Callable[[FixtureTask], Awaitable[dict[str, Any]]]) -> None:
        try:
            self.result = await work(self)
            self.status = "completed"
        except asyncio.CancelledError:
            self.status = "cancelled"
        except RpcError as error:
            self.error = {"code": error.code, "message": error.message}
            self.status = "failed"

    @property
    def state(self) -> TaskState:
        forms = {key: request for key, (request, _) in self.asked.items()}
        status = "input_required" if self.status == "working" and forms else self.status
        return TaskState(
            id=self.id,
            status=status,
            message=f"The task is {status}.",
            created_at=self.made,
            updated_at=now(),
            result=self.result,
            error=self.error,
            requests=forms,
        )


class FixtureTasks:
    """A `TaskSource` in memory."""

    def __init__(self) -> None:
        self._tasks: dict[str, FixtureTask] = {}

    def start(self, work: Callable[[FixtureTask], Awaitable[dict[str, Any]]]) -> TaskState:
        task = FixtureTask()
        self._tasks[task.id] = task
        task.job = asyncio.ensure_future(task.run(work))
        return task.state

    async def find(self, id: str, client: ClientFacts) -> TaskState | None:
        return self._tasks[id].state if id in self._tasks else None

    async def update(self, id: str, responses: dict[str, Any], client: ClientFacts) -> None:
        task = self._tasks[id]
        for key, response in responses.items():
            if key in task.asked:
                task.asked.pop(key)[1].set_result(response)
        await asyncio.sleep(0)

    async def cancel(self, id: str) -> None:
        job = self._tasks[id].job
        if job is not None:
            job.cancel()
            await asyncio.wait({job})
