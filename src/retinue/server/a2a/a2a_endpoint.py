"""A2A over HTTP, in the host's application behind its guard: JSON-RPC at one path, and one path per
operation. A tenant is the name of an agent."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from retinue.errors import RetinueError
from retinue.host.app import identity_of
from retinue.host.event_response import EventStreamResponse
from retinue.host.host import Host
from retinue.host.problem_documents import HttpProblem
from retinue.host.server_events import DataEvent, encode
from retinue.server.a2a.a2a_errors import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    VERSION,
    A2aError,
    a2a_error,
)
from retinue.server.a2a.a2a_methods import METHODS, A2aCall
from retinue.server.a2a.a2a_requests import read_params
from retinue.server.a2a.agent_card import PREFIX, agent_card, place_of
from retinue.server.a2a.agent_tasks import AgentTasks
from retinue.server.a2a.push_notifications import PushNotifier

CARD = "/.well-known/agent-card.json"
MEDIA = "application/a2a+json"
PLAIN = (
    ("POST", "/message:send", "SendMessage"),
    ("POST", "/message:stream", "SendStreamingMessage"),
    ("GET", "/tasks", "ListTasks"),
    ("POST", "/tasks/{id}:cancel", "CancelTask"),
    ("GET", "/tasks/{id}:subscribe", "SubscribeToTask"),
    ("POST", "/tasks/{id}:subscribe", "SubscribeToTask"),
    ("GET", "/tasks/{id}", "GetTask"),
    ("POST", "/tasks/{task_id}/pushNotificationConfigs", "CreateTaskPushNotificationConfig"),
    ("GET", "/tasks/{task_id}/pushNotificationConfigs", "ListTaskPushNotificationConfigs"),
    ("GET", "/tasks/{task_id}/pushNotificationConfigs/{id}", "GetTaskPushNotificationConfig"),
    (
        "DELETE",
        "/tasks/{task_id}/pushNotificationConfigs/{id}",
        "DeleteTaskPushNotificationConfig",
    ),
    ("GET", "/extendedAgentCard", "GetExtendedAgentCard"),
)
"""The operations of the plain binding, with and without a tenant before them."""
Handler = Callable[[Request], Awaitable[Response]]


class A2aEndpoint:
    """All routes of one host."""

    def __init__(self, host: Host) -> None:
        self._host, self._notifier = host, PushNotifier(host)
        self._is_begun = False
        self._beginning: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        routes = [
            _route("GET", CARD, self._card),
            _route("GET", f"{PREFIX}/{{tenant}}{CARD}", self._card),
            _route("POST", PREFIX, self._rpc),
        ]
        for before in (PREFIX, f"{PREFIX}/{{tenant}}"):
            for method, path, name in PLAIN:
                routes.append(_route(method, before + path, self._plain(name)))
        return routes

    def begin_soon(self) -> None:
        self._beginning = asyncio.get_running_loop().create_task(self.begin())

    async def begin(self) -> None:
        """Once: runs of an earlier process continue, and their news are sent."""
        if not self._is_begun:
            self._is_begun = True
            await self._host.wake_clients()
            self._notifier.begin()

    async def _card(self, request: Request) -> Response:
        try:
            tasks = AgentTasks(self._host, identity_of(request), scope="read")
            agents = await tasks.agents()
            agent = await tasks.agent_named(request.path_params.get("tenant", ""))
        except (A2aError, RetinueError, HttpProblem) as error:
            return _problem(error)
        body = encode(agent_card(place_of(request), agent, agents))
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {"etag": tag, "cache-control": "private, max-age=60"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, 200, headers, "application/json")

    async def _call(self, request: Request) -> A2aCall:
        who = identity_of(request)
        await self.begin()
        _check_version(request)
        return A2aCall(AgentTasks(self._host, who), self._notifier, request)

    # JSON-RPC

    async def _rpc(self, request: Request) -> Response:
        id: Any = None
        try:
            _check_media(request)
            message = _json(await request.body())
            id = _rpc_id(message)
            name, data = _rpc_parts(message)
            call = await self._call(request)
            method = METHODS.get(name)
            if method is None:
                raise A2aError(METHOD_NOT_FOUND, f"Unknown method {name[:80]!r}.")
            values = read_params(data, method.params)
            if method.stream is not None:
                events = await method.stream(call, values)
                return self._streamed(events, lambda value: _result(id, value))
            assert method.answer is not None
            result = await method.answer(call, values)
        except HttpProblem as error:
            return _problem(error)
        except (A2aError, RetinueError, OSError) as error:
            return self._response(request, 200, a2a_error(error).rpc(id), "application/json")
        return self._response(request, 200, _result(id, result), "application/json")

    # plain HTTP

    def _plain(self, name: str) -> Handler:
        async def answer(request: Request) -> Response:
            try:
                return await self._plain_answer(request, name)
            except (A2aError, RetinueError, HttpProblem, OSError) as error:
                return _problem(error)

        return answer

    async def _plain_answer(self, request: Request, name: str) -> Response:
        method, is_query = METHODS[name], request.method != "POST"
        if request.method == "POST":
            _check_media(request)
        data = dict(request.query_params) if is_query else _json(await request.body() or b"{}")
        if not isinstance(data, dict):
            raise A2aError(INVALID_REQUEST, "The body is not an object.")
        call = await self._call(request)
        data.pop("A2A-Version", None)
        for key, value in request.path_params.items():
            data["taskId" if key == "task_id" else key] = value
        values = read_params(data, method.params, is_query=is_query)
        if method.stream is not None:
            return self._streamed(await method.stream(call, values), lambda value: value)
        assert method.answer is not None
        return self._response(request, 200, await method.answer(call, values), MEDIA)

    def _streamed(
        self, events: AsyncIterator[dict[str, Any]], wrap: Callable[[Any], Any]
    ) -> Response:
        async def wrapped() -> AsyncIterator[Any]:
            try:
                async for value in events:
                    yield DataEvent(wrap(value))
            finally:
                await events.aclose()  # type: ignore[attr-defined]

        return EventStreamResponse(wrapped(), self._host.left())

    def _response(self, request: Request, status: int, value: Any, media: str) -> Response:
        self._host.counters[identity_of(request).user, "a2a", status] += 1
        return Response(encode(value), status, {"cache-control": "no-store"}, media)


def _route(method: str, path: str, handler: Handler) -> Route:
    route = Route(path, handler, methods=[method])
    route.methods = {method}
    return route


def _problem(error: BaseException) -> Response:
    problem = a2a_error(error)
    headers = {"cache-control": "no-store"}
    return Response(encode(problem.plain()), problem.kind.http, headers, "application/json")


def _check_media(request: Request) -> None:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = request.headers.get("content-length", "0") != "0" or (
        "transfer-encoding" in request.headers
    )
    if has_body and media not in ("application/json", MEDIA):
        raise HttpProblem(415, f"Send JSON, with Content-Type: application/json or {MEDIA}.")


def _check_version(request: Request) -> None:
    """Without a version a client means 0.3, which is not spoken here. The number of a patch does
    not count."""
    text = request.headers.get("a2a-version") or request.query_params.get("A2A-Version") or "0.3"
    if text.split(".")[:2] != ["1", "0"]:
        raise A2aError(
            VERSION, f"Version {text[:40]!r} of A2A is not supported. Send A2A-Version: 1.0."
        )


def _json(raw: bytes) -> Any:
    try:
        value = msgspec.json.decode(raw)
        encode(value)  # a half character of UTF-16 could be decoded and never be written again
        return value
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise A2aError(PARSE_ERROR, f"This is not valid JSON ({error}).") from None


def _rpc_id(message: Any) -> Any:
    id = message.get("id") if isinstance(message, dict) else None
    return id if isinstance(id, str | int) and not isinstance(id, bool) else None


def _rpc_parts(message: Any) -> tuple[str, Any]:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise A2aError(INVALID_REQUEST, 'This is not a request of JSON-RPC: jsonrpc must be "2.0".')
    name, data = message.get("method"), message.get("params")
    if not isinstance(name, str) or not name:
        raise A2aError(INVALID_REQUEST, "The request has no method.")
    if message.get("id") is not None and _rpc_id(message) is None:
        raise A2aError(INVALID_REQUEST, "The id of a request is a text or an integer.")
    if data is not None and not isinstance(data, dict):
        raise A2aError(INVALID_REQUEST, "The parameters of a request are an object.")
    return name, data


def _result(id: Any, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def a2a_routes(host: Host) -> list[Route]:
    """The routes. What an earlier process has left in a store continues immediately, otherwise
    with the first request."""
    endpoint = A2aEndpoint(host)
    if host.introduction().store:
        endpoint.begin_soon()
    return endpoint.routes()
