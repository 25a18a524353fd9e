"""The one ASGI application of a host: a route for each operation, and the dashboard. The command
line reaches it over the host's Unix socket, `retinue serve` opens it on an address, and a program
can mount it in a service of its own; no one reaches it but through a `AccessGuard`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from retinue.core.state_names import ENDS
from retinue.errors import RetinueError
from retinue.formats.json_values import converted
from retinue.host.event_response import EventStreamResponse
from retinue.host.host import Host
from retinue.host.identity import IDENTITY, Identity
from retinue.host.operations import BY_REQUEST, OPERATIONS, PREFIX, Operation
from retinue.host.page_files import page_routes
from retinue.host.problem_documents import (
    MEDIA,
    HttpProblem,
    ProblemDocument,
    body_at,
    problem_of,
)
from retinue.host.requests import HostRequest, Position, ShowRequest, WatchRequest
from retinue.host.server_events import ServerEvent, encode

log = logging.getLogger("retinue.host")
KEY_LIMIT = 200


def build_app(host: Host, more: Sequence[Route] = ()) -> Starlette:
    """The routes, without the guard that must be around them; `more` are those of one client."""
    by_path: dict[str, dict[str, OperationEndpoint]] = {}
    for op in OPERATIONS:
        by_path.setdefault(PREFIX + op.path, {})[op.method] = OperationEndpoint(host, op)
    routes = [_route(path, endpoints) for path, endpoints in by_path.items()]
    routes.append(Route(f"{PREFIX}/openapi.json", _openapi, methods=["GET"]))
    handlers: dict[Any, Any] = {HTTPException: _wrong_route, HttpProblem: _problem}
    return Starlette(routes=[*routes, *more, *page_routes()], exception_handlers=handlers)


def _route(path: str, endpoints: dict[str, OperationEndpoint]) -> Route:
    async def answer(request: Request) -> Response:
        return await endpoints[request.method].answer(request)

    route = Route(path, answer, methods=list(endpoints))
    route.methods = set(endpoints)  # without HEAD, which would open a stream that no one reads
    return route


class OperationEndpoint:
    """Reads a request, has the host carry it out, and writes the reply or the problem."""

    def __init__(self, host: Host, operation: Operation) -> None:
        self._host, self._op = host, operation

    async def answer(self, request: Request) -> Response:
        try:
            response = await self._answer(request)
        except (HttpProblem, RetinueError, OSError) as error:
            response = problem_response(error)
        except Exception as error:
            log.exception("request %s failed", self._op.name)
            response = problem_response(error)
        who = request.scope.get(IDENTITY)
        user = who.user if isinstance(who, Identity) else ""
        self._host.counters[user, self._op.name, response.status_code] += 1
        return response

    async def _answer(self, request: Request) -> Response:
        op, who = self._op, identity_of(request)
        who.need(op.scope, "This request")
        value = await _read(request, op)
        if hasattr(value, "after") and "last-event-id" in request.headers:
            value = replace(value, after=_last_event_id(request))
        if op.is_stream:
            await check_runs(self._host, value, who)
            events = getattr(self._host, op.name)(value, who)
            return await self._stream(request, events, value, who)
        work = carry_out(self._host, value, who, idempotency_key(request))
        reply = await (while_connected(request, work) if op.ends_with_client else work)
        body = reply if isinstance(reply, bytes) else None
        if isinstance(reply, str):
            body = reply.encode()
        headers = {"cache-control": "no-store"}
        if op.status == 201:
            headers["location"] = f"{PREFIX}/runs/{reply.run}"
        return Response(encode(reply) if body is None else body, op.status, headers, op.media)

    async def _stream(
        self, request: Request, events: AsyncIterator[ServerEvent], value: Any, who: Identity
    ) -> Response:
        """A browser that comes back after the last event of a run gets a 204, or it would ask again
        without end."""
        first: ServerEvent | None = None
        if isinstance(value, WatchRequest) and "last-event-id" in request.headers:
            detail = await self._host.show(ShowRequest(run=value.run), who)
            if detail.state in ENDS:
                first = await anext(events)
                if first.name == "end":
                    return Response(status_code=204)
        return EventStreamResponse(events, self._host.left(), first)


async def carry_out(host: Host, value: HostRequest, who: Identity, key: str = "") -> Any:
    """Have the host do what is asked, within what this identity may do and see."""
    op = BY_REQUEST[type(value)]
    who.need(op.scope, "This request")
    await check_runs(host, value, who)
    method = getattr(host, op.name)
    return await (method(value, who, key) if op.name == "start" else method(value, who))


async def check_runs(host: Host, value: HostRequest, who: Identity) -> None:
    named = getattr(value, "runs", None) or [getattr(value, "run", "")]
    await host.check_visible(filter(None, named), who)


async def while_connected(request: Request, work: Any) -> Any:
    """A reply that may take long is not waited for when its client has gone."""
    task, departure = asyncio.ensure_future(work), asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({task, departure}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise HttpProblem(408, "The client disconnected before there was a reply.")
        return task.result()
    finally:
        task.cancel()
        departure.cancel()
        await asyncio.gather(task, departure, return_exceptions=True)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def identity_of(request: Request) -> Identity:
    """Who was let in by the guard. Without one no one was."""
    who = request.scope.get(IDENTITY)
    if not isinstance(who, Identity):
        raise HttpProblem(401, "This application is not behind its guard. Nothing was done.")
    return who


async def _read(request: Request, op: Operation) -> Any:
    """The request of an operation, from the path, the query and the body."""
    if op.method == "POST":
        data = await json_body(request)
    else:
        data = dict(request.query_params)
    for name in op.path_fields:
        if name in data:
            raise HttpProblem(400, f"{name} is part of the path. Leave it out of the request.")
        data[name] = request.path_params[name]
    is_strict = op.method == "POST"
    try:
        return converted(data, op.request, strict=is_strict)
    except (msgspec.ValidationError, ValueError, OverflowError, RecursionError) as error:
        raise HttpProblem(400, f"The host could not read this request ({error}).") from None


async def json_body(request: Request) -> dict[str, Any]:
    """The object that a client has sent. Raises `HttpProblem`."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in ("", "application/json"):
        raise HttpProblem(415, "Send the request as JSON, with Content-Type: application/json.")
    raw = await request.body()
    if raw and not media:
        raise HttpProblem(415, "Send the request as JSON, with Content-Type: application/json.")
    try:
        data = msgspec.json.decode(raw or b"{}")
        if not isinstance(data, dict):
            raise ValueError("it is not an object")
        encode(data)  # a half character of UTF-16 could be decoded and never be written again
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HttpProblem(400, f"The body is not valid JSON ({error}).") from None
    return data


def _last_event_id(request: Request) -> int:
    try:
        return msgspec.convert(request.headers["last-event-id"], Position, strict=False)
    except msgspec.ValidationError:
        raise HttpProblem(400, "Last-Event-ID is not one of the ids of this stream.") from None


def idempotency_key(request: Request) -> str:
    """What a client calls this request, however often it sends it; "" if it does not."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > KEY_LIMIT:
        raise HttpProblem(400, f"Idempotency-Key is longer than {KEY_LIMIT} characters.")
    return key


async def _openapi(request: Request) -> Response:
    from retinue.host.openapi import description

    try:
        identity_of(request).need("read", "This request")
    except HttpProblem as error:
        return problem_response(error)
    return Response(encode(description()), media_type="application/json")


async def _wrong_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text, headers = f"Nothing found at {request.url.path}.", dict(error.headers or {})
    if error.status_code == 405:
        text = f"{request.url.path} cannot be used with {request.method}."
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    problem = HttpProblem(error.status_code, text, headers)
    return problem_response(problem, request.url.path)


def _methods(request: Request) -> set[str]:
    """What a path can be used with, by all of its routes: there may be one for each method."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return {m for route in matching if route.path == matching[0].path for m in route.methods or ()}


async def _problem(request: Request, error: Exception) -> Response:
    return problem_response(error, request.url.path)


def problem_response(error: BaseException, path: str = "") -> Response:
    problem: ProblemDocument = problem_of(error)
    headers = error.headers if isinstance(error, HttpProblem) else {}
    body = encode(body_at(path, problem))
    return Response(body, problem.status, {"cache-control": "no-store", **headers}, MEDIA)
