"""MCP over HTTP (streamable HTTP), in the host's own application and behind its guard: the token,
the Host and Origin headers were checked before a request comes here. The guest is the user of
the token."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from retinue.host.app import identity_of, problem_response
from retinue.host.identity import Identity
from retinue.host.problem_documents import HttpProblem
from retinue.mcp import protocol_versions as versions
from retinue.mcp import rpc_messages as rpc
from retinue.mcp.routing_headers import check_headers
from retinue.mcp.rpc_messages import RpcError, RpcRequest
from retinue.mcp.rpc_server import RpcServer, RpcSession

PATH = "/mcp"
MOST_SESSIONS = 1_000
QUIET_SECONDS = 0.2
"""A request that is answered within this time, without anything on the way, needs no stream."""
BEAT_SECONDS = 15.0
STATUS = {
    rpc.PARSE_ERROR: 400,
    rpc.INVALID_REQUEST: 400,
    rpc.INVALID_PARAMS: 400,
    rpc.HEADER_MISMATCH: 400,
    rpc.MISSING_CAPABILITY: 400,
    rpc.UNSUPPORTED_VERSION: 400,
    rpc.METHOD_NOT_FOUND: 404,
}
"""The HTTP status of an error, in the era without sessions."""


class McpEndpoint:
    """One path for all clients. Sessions are of the era that has them, and end with the process:
    a client then begins a new one and finds its agents there. While the process is leaving, a
    stream that ends says nothing about what its client wants."""

    def __init__(self, server: RpcServer, is_leaving: Callable[[], bool] = lambda: False) -> None:
        self._server, self._is_leaving = server, is_leaving
        self._sessions: OrderedDict[tuple[Identity, str], RpcSession] = OrderedDict()

    @property
    def route(self) -> Route:
        return Route(PATH, self.answer, methods=["POST", "GET", "DELETE"])

    async def answer(self, request: Request) -> Response:
        try:
            who = identity_of(request)
            who.need("run", "MCP")
            if request.method == "POST":
                return await self._post(request, who)
            return self._other(request, who)
        except HttpProblem as error:
            return problem_response(error)
        except RpcError as error:
            return _json(rpc.error_message(error), STATUS.get(error.code, 200))

    def _other(self, request: Request, owner: Identity) -> Response:
        """The end of a session. There is no separate stream: notifications come on the stream
        of a request."""
        if request.method != "DELETE":
            raise HttpProblem(405, "This path has no stream. Send messages with POST.")
        id = request.headers.get("mcp-session-id", "")
        if self._sessions.pop((owner, id), None) is None:
            raise HttpProblem(404, "Session not found.")
        return Response(status_code=204)

    async def _post(self, request: Request, owner: Identity) -> Response:
        accepts = request.headers.get("accept", "*/*")
        if not any(kind in accepts for kind in ("*/*", "application/json", "application/*")):
            raise HttpProblem(406, "Accept must name application/json and text/event-stream.")
        message = rpc.read_message(await request.body())
        version = request.headers.get("mcp-protocol-version", "")
        is_stateless = version in versions.STATELESS_VERSIONS or (
            isinstance(message, RpcRequest)
            and (versions.has_envelope(message) or message.method == "server/discover")
        )
        if is_stateless:
            return await self._stateless(request, message, owner)
        return await self._in_session(request, message, owner, version)

    async def _stateless(
        self, request: Request, message: rpc.RpcMessage, owner: Identity
    ) -> Response:
        if not isinstance(message, RpcRequest):
            versions.check_version(request.headers.get("mcp-protocol-version", ""))
            return Response(status_code=202)
        try:
            check_headers(request.headers, message)
            versions.facts_of_envelope(message)
        except RpcError as error:
            return _json(rpc.error_message(error, message.id), STATUS.get(error.code, 200))
        return await self._exchange(request, message, RpcSession(owner=owner), is_stateless=True)

    async def _in_session(
        self, request: Request, message: rpc.RpcMessage, owner: Identity, version: str
    ) -> Response:
        if version and version not in versions.HANDSHAKE_VERSIONS:
            raise HttpProblem(400, f"Version {version[:40]!r} of the protocol is not supported.")
        if isinstance(message, RpcRequest) and message.method == "initialize":
            id, session = secrets.token_urlsafe(24), RpcSession(owner=owner)
            self._sessions[owner, id] = session
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
            response = await self._exchange(request, message, session, is_stateless=False)
            response.headers["mcp-session-id"] = id
            return response
        key = (owner, request.headers.get("mcp-session-id", ""))
        if not key[1]:
            raise HttpProblem(400, "Send initialize first, then Mcp-Session-Id with each message.")
        open_session = self._sessions.get(key)
        if open_session is None:
            raise HttpProblem(404, "Session not found. Send initialize.")
        self._sessions.move_to_end(key)
        if not isinstance(message, RpcRequest):
            await self._server.handle(message, open_session, _nowhere)
            return Response(status_code=202)
        return await self._exchange(request, message, open_session, is_stateless=False)

    async def _exchange(
        self, request: Request, message: RpcRequest, session: RpcSession, *, is_stateless: bool
    ) -> Response:
        """One request: answered as JSON when it is answered immediately, and as a stream of events
        when something comes before the response. Who closes the stream takes a stateless request
        back."""
        out: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        async def work() -> None:
            try:
                await self._server.handle(message, session, out.put, request.headers)
            finally:
                out.put_nowait(None)

        task = asyncio.ensure_future(work())
        try:
            first = await asyncio.wait_for(out.get(), QUIET_SECONDS)
        except TimeoutError:
            first = {}
        if first is None:  # taken back
            return Response(status_code=202)
        if first and "method" not in first:
            code = first.get("error", {}).get("code", 0)
            return _json(first, STATUS.get(code, 200) if is_stateless else 200)

        def leave() -> None:
            if is_stateless and not self._is_leaving():
                session.cancel(message.id)
            else:
                task.cancel()

        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        stream = _events(out, first or None, leave)
        return StreamingResponse(stream, 200, headers, "text/event-stream")


async def _events(
    out: asyncio.Queue[dict[str, Any] | None], first: dict[str, Any] | None, leave: Any
) -> AsyncIterator[bytes]:
    is_over = False
    try:
        if first is not None:
            yield _event(first)
        while True:
            try:
                message = await asyncio.wait_for(out.get(), BEAT_SECONDS)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if message is None:
                is_over = True
                return
            is_over = "method" not in message
            yield _event(message)
    finally:
        if not is_over:
            leave()


def _event(message: dict[str, Any]) -> bytes:
    return b"event: message\ndata: " + rpc.encode(message) + b"\n\n"


def _json(message: dict[str, Any], status: int) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(rpc.encode(message), status, headers, "application/json")


async def _nowhere(message: dict[str, Any]) -> None:
    """A notification or a response is not answered."""
