"""Notifications that a client has subscribed to. In 2026-07-28 it opens a stream for that
(`subscriptions/listen`); in 2025-11-25 notifications come on its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from retinue.mcp import rpc_messages as rpc
from retinue.mcp.change_watch import Version, resource_changes, task_changes
from retinue.mcp.protocol_versions import PREFIX
from retinue.mcp.rpc_messages import RpcError
from retinue.mcp.rpc_server import RpcCall, RpcSession
from retinue.mcp.task_methods import TaskSource, TaskState, old_task_fields, task_fields

SUBSCRIPTION = f"{PREFIX}subscriptionId"
MOST_WATCHED = 100
UPDATED = "notifications/resources/updated"


class Subscriptions:
    """Of one guest: its tasks and its agents' conversations. Lists of tools and prompts never
    change, so there is nothing to tell of them."""

    def __init__(self, tasks: TaskSource, version: Version) -> None:
        self._tasks, self._version = tasks, version

    async def listen(self, call: RpcCall) -> dict[str, Any]:
        """Of 2026-07-28: tell what changes until the client takes the request back."""
        if not call.client.is_stateless:
            text = "Method 'subscriptions/listen' not found in this version."
            raise RpcError(rpc.METHOD_NOT_FOUND, text)
        filters = call.params.get("notifications")
        if not isinstance(filters, dict):
            text = "subscriptions/listen needs notifications, an object."
            raise RpcError(rpc.INVALID_PARAMS, text)
        ids = await self._known_tasks(call, _texts(filters, "taskIds"))
        # Before it is acknowledged, so that no change from then on is missed.
        uris = await self._known_uris(_texts(filters, "resourceSubscriptions"))
        lists = {"taskIds": ids, "resourceSubscriptions": list(uris)}
        accepted = {name: values for name, values in lists.items() if name in filters}
        meta = {SUBSCRIPTION: call.request.id}
        acknowledgement = {"notifications": accepted, "_meta": meta}
        await call.notify("notifications/subscriptions/acknowledged", acknowledgement)
        await asyncio.gather(
            *(self._tell_task(call, id, meta) for id in ids),
            *(self._tell_uri(call, uri, version, meta) for uri, version in uris.items()),
            asyncio.Event().wait(),  # it stays open when everything has ended
        )
        return {"_meta": meta}

    async def _known_tasks(self, call: RpcCall, ids: list[str]) -> list[str]:
        if ids:
            call.client.need_tasks()
        return [id for id in ids if await self._tasks.find(id, call.client) is not None]

    async def _known_uris(self, uris: list[str]) -> dict[str, Any]:
        """Those that are there, each with what it looks like."""
        versions = {uri: await self._version(uri) for uri in uris}
        return {uri: version for uri, version in versions.items() if version is not None}

    async def _tell_task(self, call: RpcCall, id: str, meta: dict[str, Any]) -> None:
        async for state in task_changes(self._tasks, id, call.client):
            await call.notify("notifications/tasks", {**task_fields(state), "_meta": meta})

    async def _tell_uri(self, call: RpcCall, uri: str, version: Any, meta: dict[str, Any]) -> None:
        async for _ in resource_changes(self._version, uri, version):
            await call.notify(UPDATED, {"uri": uri, "_meta": meta})

    # in the era with a handshake

    def follow_task(self, call: RpcCall, state: TaskState) -> None:
        """Tell the client of a task that it has just started, where there is a way to."""
        session = call.session

        async def tell() -> None:
            async for now in task_changes(self._tasks, state.id, call.client):
                await session.notify("notifications/tasks/status", old_task_fields(now))

        _watch(session, state.id, tell())

    async def subscribe(self, call: RpcCall) -> dict[str, Any]:
        uri, session = _uri(call), call.session
        version = await self._version(uri)
        if version is None:
            raise RpcError(rpc.RESOURCE_NOT_FOUND, "Resource not found.", {"uri": uri})
        if len(session.watches) >= MOST_WATCHED:
            text = f"The limit of {MOST_WATCHED} subscriptions is reached. Unsubscribe from some."
            raise RpcError(rpc.INVALID_PARAMS, text)

        async def tell() -> None:
            async for _ in resource_changes(self._version, uri, version):
                await session.notify(UPDATED, {"uri": uri})

        _watch(session, uri, tell())
        return {}

    async def unsubscribe(self, call: RpcCall) -> dict[str, Any]:
        watch = call.session.watches.pop(_uri(call), None)
        if watch is not None:
            watch.cancel()
        return {}


def _uri(call: RpcCall) -> str:
    if call.client.is_stateless or call.session.outlet is None:
        text = f"Method {call.request.method!r} not found in this version."
        raise RpcError(rpc.METHOD_NOT_FOUND, text)
    return call.text_param("uri")


def _watch(session: RpcSession, name: str, work: Coroutine[Any, Any, None]) -> None:
    """Keep telling until that ends or the client goes."""
    if session.outlet is None or name in session.watches or len(session.watches) >= MOST_WATCHED:
        work.close()
        return
    task = asyncio.ensure_future(work)
    session.watches[name] = task
    task.add_done_callback(lambda watch: _forget(session, name, watch))


def _forget(session: RpcSession, name: str, task: asyncio.Task[None]) -> None:
    if session.watches.get(name) is task:
        del session.watches[name]
    if not task.cancelled():
        task.exception()  # the client asks when it wants to know more


def _texts(filters: dict[str, Any], name: str) -> list[str]:
    values = filters.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RpcError(rpc.INVALID_PARAMS, f"notifications.{name} is a list of strings.")
    if len(values) > MOST_WATCHED:
        text = f"notifications.{name} has at most {MOST_WATCHED} entries."
        raise RpcError(rpc.INVALID_PARAMS, text)
    return list(dict.fromkeys(values))
