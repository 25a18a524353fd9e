"""The official client of A2A against our server, in both bindings: `make agents`. Its last line is
JSON."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import sys
import uuid
from typing import Any

from retinue import Agent
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from tests.host.served import ADMIN, Served, served


def counting(request: ModelRequest) -> str:
    return f"Answer to message {len(request.messages)}."


ASKS = [call("ask", question="Which city?"), "Lima it is."]
AGENTS = [
    Agent("main", "Be kind.", model=Scripted(counting, name="counting")),
    Agent("curious", model=Scripted(ASKS, name="curious's"), tools=["ask"]),
]


async def check(api: Served, binding: str) -> int:
    """Everything that the client can do. Returns how many things were compared."""
    import httpx
    from a2a import types
    from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
    from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError

    headers = {"authorization": f"Bearer {ADMIN}"}
    place = f"http://127.0.0.1:{api.port}"
    records: list[bool] = []
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:

        async def client_of(base: str, *, streaming: bool) -> Any:
            card = await A2ACardResolver(http, base).get_agent_card()
            config = ClientConfig(
                streaming=streaming,
                httpx_client=http,
                supported_protocol_bindings=[binding],
                use_client_preference=True,
            )
            return ClientFactory(config).create(card)

        def says(text: str, **fields: Any) -> Any:
            message = types.Message(
                message_id=str(uuid.uuid4()),
                role=types.Role.ROLE_USER,
                parts=[types.Part(text=text)],
                **fields,
            )
            return types.SendMessageRequest(message=message)

        async def sent(client: Any, request: Any) -> list[Any]:
            return [event async for event in client.send_message(request)]

        main = await client_of(place, streaming=False)
        [first] = await sent(main, says("hi"))
        task = first.task
        records.append(task.status.state == types.TaskState.TASK_STATE_COMPLETED)
        records.append(task.artifacts[0].parts[0].text == "Answer to message 1.")
        [second] = await sent(main, says("and?", context_id=task.context_id))
        records.append(second.task.artifacts[0].parts[0].text == "Answer to message 3.")
        again = await main.get_task(types.GetTaskRequest(id=task.id))
        records.append(again == task)
        request = types.ListTasksRequest(context_id=task.context_id, page_size=1)
        page = await main.list_tasks(request)
        records.append([t.id for t in page.tasks] == [second.task.id] and page.total_size == 2)

        curious = await client_of(f"{place}/a2a/curious", streaming=True)
        events = await sent(curious, says("book"))
        last = events[-1].status_update
        records.append(last.status.state == types.TaskState.TASK_STATE_INPUT_REQUIRED)
        id = last.task_id
        subscribed = curious.subscribe(types.SubscribeToTaskRequest(id=id))
        opening = await anext(subscribed)
        records.append(opening.task.id == id)
        answer = await sent(curious, says("Lima", task_id=id))
        records.append(answer[-1].status_update.status.state == 3)
        rest = [event async for event in subscribed]
        records.append(rest[-1].status_update.status.state == 3)

        config = types.TaskPushNotificationConfig(
            task_id=id, id="one", url="https://example.org/hook"
        )
        result = await curious.create_task_push_notification_config(config)
        records.append(result.url == config.url)
        one = types.GetTaskPushNotificationConfigRequest(task_id=id, id="one")
        records.append(await curious.get_task_push_notification_config(one) == result)
        every = types.ListTaskPushNotificationConfigsRequest(task_id=id)
        listed = await curious.list_task_push_notification_configs(every)
        records.append(list(listed.configs) == [result])
        delete_request = types.DeleteTaskPushNotificationConfigRequest(task_id=id, id="one")
        await curious.delete_task_push_notification_config(delete_request)
        listed = await curious.list_task_push_notification_configs(every)
        records.append(not listed.configs)

        for question, error in ((id, TaskNotCancelableError), ("nothing", TaskNotFoundError)):
            try:
                await main.cancel_task(types.CancelTaskRequest(id=question))
                records.append(False)
            except error:
                records.append(True)
        [waiting] = await sent(await client_of(f"{place}/a2a/curious", streaming=False), says("b"))
        ended = await curious.cancel_task(types.CancelTaskRequest(id=waiting.task.id))
        records.append(ended.status.state == types.TaskState.TASK_STATE_CANCELED)
    if not all(records):
        sys.stderr.write(f"{binding}: {records}\n")
    return len(records) if all(records) else 0


def main() -> int:
    with served(agents=AGENTS) as api:
        counts = {name: asyncio.run(check(api, name)) for name in ("JSONRPC", "HTTP+JSON")}
    is_ok = all(counts.values())
    text = {"ok": is_ok, "sdk": importlib.metadata.version("a2a-sdk"), "checks": counts}
    sys.stdout.write(json.dumps(text) + "\n")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
