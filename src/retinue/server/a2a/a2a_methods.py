"""The operations of A2A for both bindings: name, parameters and required scope."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

from starlette.requests import Request

from retinue.host.app import while_connected
from retinue.host.problem_documents import HttpProblem
from retinue.server.a2a import a2a_requests as params
from retinue.server.a2a.a2a_errors import UNSUPPORTED, A2aError
from retinue.server.a2a.agent_tasks import AgentTasks
from retinue.server.a2a.push_notifications import PushNotifier
from retinue.server.a2a.task_pages import list_tasks
from retinue.server.run_turns import RunTurn


class A2aCall(NamedTuple):
    """One request of a client."""

    tasks: AgentTasks
    notifier: PushNotifier
    request: Request


class A2aMethod(NamedTuple):
    """`answer` gives the result; `stream` gives the first of its events, and the turn in which the
    others come."""

    params: type[Any]
    answer: Callable[[A2aCall, Any], Awaitable[dict[str, Any]]] | None = None
    stream: Callable[[A2aCall, Any], Awaitable[AsyncIterator[dict[str, Any]]]] | None = None


async def send(call: A2aCall, values: params.SendParams) -> dict[str, Any]:
    """The task, when it is over or waits; immediately if that is wanted."""
    turn, options = await _sent(call, values)
    if not options.return_immediately:
        try:
            await while_connected(call.request, call.tasks.ended(turn))
        except HttpProblem as error:
            raise A2aError(UNSUPPORTED, str(error)) from None
    return {"task": await call.tasks.task(turn.run, options.history_length)}


async def send_streaming(call: A2aCall, values: params.SendParams) -> AsyncIterator[dict[str, Any]]:
    turn, options = await _sent(call, values)
    task = await call.tasks.beginning(turn, options.history_length)
    return _stream(call, task, turn, is_endless=False)


async def _sent(
    call: A2aCall, values: params.SendParams
) -> tuple[RunTurn, params.SendConfiguration]:
    options = values.configuration or params.SendConfiguration()
    turn = await call.tasks.send(values)
    if options.task_push_notification_config is not None:
        config = options.task_push_notification_config
        await call.notifier.add(call.tasks, turn.run, config, turn.start)
    return turn, options


async def _stream(
    call: A2aCall, task: dict[str, Any], turn: RunTurn, *, is_endless: bool
) -> AsyncIterator[dict[str, Any]]:
    yield {"task": task}
    async with aclosing(call.tasks.updates(turn, is_endless=is_endless)) as updates:  # type: ignore[type-var]
        async for update in updates:
            yield update


async def subscribe(call: A2aCall, values: params.TaskParams) -> AsyncIterator[dict[str, Any]]:
    task, turn = await call.tasks.subscribe(values.id)
    return _stream(call, task, turn, is_endless=True)


async def get_task(call: A2aCall, values: params.TaskParams) -> dict[str, Any]:
    return await call.tasks.task(values.id, values.history_length)


async def pages(call: A2aCall, values: params.ListParams) -> dict[str, Any]:
    return await list_tasks(call.tasks, values)


async def cancel(call: A2aCall, values: params.TaskParams) -> dict[str, Any]:
    return await call.tasks.cancel(values)


async def create_push(call: A2aCall, values: params.PushConfig) -> dict[str, Any]:
    return await call.notifier.add(call.tasks, values.task_id or "", values)


async def get_push(call: A2aCall, values: params.PushParams) -> dict[str, Any]:
    return await call.notifier.find(call.tasks, values)


async def list_push(call: A2aCall, values: params.PushParams) -> dict[str, Any]:
    return await call.notifier.listed(call.tasks, values)


async def delete_push(call: A2aCall, values: params.PushParams) -> dict[str, Any]:
    return await call.notifier.remove(call.tasks, values)


async def extended_card(call: A2aCall, values: params.NoParams) -> dict[str, Any]:
    raise A2aError(UNSUPPORTED, "There is one card, and it says everything.")


METHODS: dict[str, A2aMethod] = {
    "SendMessage": A2aMethod(params.SendParams, send),
    "SendStreamingMessage": A2aMethod(params.SendParams, stream=send_streaming),
    "GetTask": A2aMethod(params.TaskParams, get_task),
    "ListTasks": A2aMethod(params.ListParams, pages),
    "CancelTask": A2aMethod(params.TaskParams, cancel),
    "SubscribeToTask": A2aMethod(params.TaskParams, stream=subscribe),
    "CreateTaskPushNotificationConfig": A2aMethod(params.PushConfig, create_push),
    "GetTaskPushNotificationConfig": A2aMethod(params.PushParams, get_push),
    "ListTaskPushNotificationConfigs": A2aMethod(params.PushParams, list_push),
    "DeleteTaskPushNotificationConfig": A2aMethod(params.PushParams, delete_push),
    "GetExtendedAgentCard": A2aMethod(params.NoParams, extended_card),
}
