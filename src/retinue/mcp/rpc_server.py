"""The protocol without transport or tools: the client, open requests, and which function answers a
method. What is offered is a table of methods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from retinue.errors import RetinueError
from retinue.mcp import protocol_versions as versions
from retinue.mcp import rpc_messages as rpc
from retinue.mcp.protocol_versions import ClientFacts
from retinue.mcp.rpc_messages import RpcError, RpcMessage, RpcRequest

log = logging.getLogger("retinue.mcp")
MOST_CALLS = 200
"""Requests of one client that are under way at a time."""
ANSWER_SECONDS = 600.0
FINISH_SECONDS = 5.0
"""How long a client that has gone is survived by what it has asked for last."""

Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(eq=False)
class RpcCall:
    """A request that is being answered. `send` reaches its client while it is."""

    request: RpcRequest
    client: ClientFacts
    session: RpcSession
    send: Send
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cancelled: bool = False
    """The client no longer wants it, which is more than that it has gone."""
    _progress: float = -1.0

    @property
    def params(self) -> dict[str, Any]:
        return self.request.params

    def text_param(self, name: str) -> str:
        value = self.params.get(name)
        if not isinstance(value, str):
            raise RpcError(rpc.INVALID_PARAMS, f"{self.request.method} needs {name}, a string.")
        return value

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        await self.send(rpc.notification_message(method, params))

    async def progress(self, amount: float, total: float | None, message: str) -> None:
        """Report how far it is, if that is wanted and more than at the last time."""
        token = self.request.meta.get("progressToken")
        if isinstance(token, str | int) and not isinstance(token, bool) and amount > self._progress:
            self._progress = amount
            params: dict[str, Any] = {
                "progressToken": token,
                "progress": amount,
                "message": message,
            }
            if total is not None:
                params["total"] = total
            await self.notify("notifications/progress", params)

    async def ask_client(
        self, method: str, params: dict[str, Any], seconds: float = ANSWER_SECONDS
    ) -> dict[str, Any]:
        """A request of ours, in the era that has such. Raises `RpcError` when it fails."""
        id, future = self.session.expect()
        try:
            await self.send(rpc.request_message(id, method, params))
            response = await asyncio.wait_for(future, seconds)
        except TimeoutError:
            raise RpcError(rpc.INTERNAL_ERROR, f"The client did not answer {method}.") from None
        finally:
            self.session.waiting.pop(id, None)
        if response.result is None:
            raise RpcError(rpc.INTERNAL_ERROR, f"The client refused {method}: {response.error}")
        return response.result


@dataclass(eq=False)
class RpcSession:
    """One client on one connection. `client` is known after a handshake; `owner` is the
    identity that the transport found. `outlet` reaches it at any time, where the transport can;
    `watches` are what it is notified of. `roots` are None until it has said them. `last_work` is
    what is done to its end."""

    client: ClientFacts | None = None
    owner: Any = None
    outlet: Send | None = None
    roots: tuple[str, ...] | None = None
    last_work: set[asyncio.Future[Any]] = field(default_factory=set)
    watches: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    calls: dict[rpc.Id, tuple[RpcCall, asyncio.Future[Any]]] = field(default_factory=dict)
    waiting: dict[rpc.Id, asyncio.Future[rpc.RpcResponse]] = field(default_factory=dict)
    _n: int = 0

    def expect(self) -> tuple[str, asyncio.Future[rpc.RpcResponse]]:
        self._n += 1
        future = asyncio.get_running_loop().create_future()
        self.waiting[id := f"retinue-{self._n}"] = future
        return id, future

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        if self.outlet is not None:
            await self.outlet(rpc.notification_message(method, params))

    def take_note(self, method: str, params: dict[str, Any]) -> None:
        """A notification of the client. Those that mean nothing here are left alone."""
        if method == "notifications/cancelled":
            self.cancel(params.get("requestId"))
        elif method == "notifications/roots/list_changed":
            self.roots = None

    def cancel(self, id: Any) -> None:
        """The client no longer wants this request. One that is not known has ended."""
        call = self.calls.get(id) if isinstance(id, str | int) else None
        if call is not None and call[0].request.method != "initialize":
            call[0].is_cancelled = True
            call[1].cancel()

    async def finish(self, work: Coroutine[Any, Any, Any]) -> None:
        """Work that is done to its end although perhaps no one waits for it now."""
        task = asyncio.ensure_future(work)
        self.last_work.add(task)
        task.add_done_callback(self._finished)
        await asyncio.shield(task)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self.last_work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: %s", type(error).__name__, error)

    async def leave(self) -> None:
        """The client has gone. What it has started continues, and what it has taken back is
        stopped."""
        tasks = [*(task for _, task in self.calls.values()), *self.watches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.last_work:
            await asyncio.wait(self.last_work, timeout=FINISH_SECONDS)


Method = Callable[[RpcCall], Awaitable[dict[str, Any]]]


class Offer(Protocol):
    """What a server has for its clients."""

    instructions: str
    methods: Mapping[str, Method]

    def capabilities(self, client: ClientFacts) -> dict[str, Any]: ...


class RpcServer:
    """Answers the messages of any number of sessions. `info` is what it says of itself."""

    def __init__(self, offer: Offer, info: dict[str, str]) -> None:
        self._offer, self.info = offer, info

    async def handle(
        self,
        message: RpcMessage,
        session: RpcSession,
        send: Send,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Do what a message asks for, and send its response when there is one to send."""
        match message:
            case rpc.RpcRequest():
                await self._respond(message, session, send, headers or {})
            case rpc.RpcNotification():
                session.take_note(message.method, message.params)
            case rpc.RpcResponse():
                future = session.waiting.get(message.id)
                if future is not None and not future.done():
                    future.set_result(message)

    async def _respond(
        self, request: RpcRequest, session: RpcSession, send: Send, headers: Mapping[str, str]
    ) -> None:
        try:
            call = self._call(request, session, send, headers)
        except RpcError as error:
            await send(rpc.error_message(error, request.id))
            return
        task = asyncio.ensure_future(self._answer(call))
        session.calls[request.id] = (call, task)
        try:
            reply = await task
        except asyncio.CancelledError:
            if not task.done():  # we are cancelled, and not only the request
                task.cancel()
                await asyncio.wait({task})
                raise
            return
        finally:
            session.calls.pop(request.id, None)
        await send(reply)

    def _call(
        self, request: RpcRequest, session: RpcSession, send: Send, headers: Mapping[str, str]
    ) -> RpcCall:
        if request.id in session.calls:
            raise RpcError(rpc.INVALID_REQUEST, "A request with this id is under way.")
        if len(session.calls) >= MOST_CALLS:
            text = f"{MOST_CALLS} requests are under way. Try again later."
            raise RpcError(rpc.INTERNAL_ERROR, text)
        return RpcCall(request, self._client(request, session), session, send, headers)

    async def _answer(self, call: RpcCall) -> dict[str, Any]:
        """The response. Whatever goes wrong becomes an error of the specification."""
        request = call.request
        try:
            result = await self._method(request.method)(call)
            reply = versions.finished(result, request.method, call.client, self.info)
            return rpc.result_message(request.id, reply)
        except RpcError as error:
            return rpc.error_message(error, request.id)
        except RetinueError as error:
            failed = RpcError(rpc.INTERNAL_ERROR, str(error))
            return rpc.error_message(failed, request.id)
        except Exception as error:
            log.exception("%s failed", request.method[:80])
            text = f"The server failed: {type(error).__name__}. See its log for details."
            return rpc.error_message(RpcError(rpc.INTERNAL_ERROR, text), request.id)

    def _client(self, request: RpcRequest, session: RpcSession) -> ClientFacts:
        """Who asks. Each request is of the era that it shows: a client may try both."""
        if request.method == "initialize" and not versions.has_envelope(request):
            session.client = versions.facts_of_handshake(request.params)
            return session.client
        if versions.has_envelope(request) or request.method == "server/discover":
            return versions.facts_of_envelope(request)
        if session.client is not None:
            return session.client
        if request.method == "ping":
            return ClientFacts(versions.HANDSHAKE_VERSIONS[-1])
        raise RpcError(
            rpc.INVALID_PARAMS,
            f"Send initialize first, or {versions.VERSION_KEY} and {versions.CAPABILITIES_KEY} in "
            "params._meta of every request.",
        )

    def _method(self, name: str) -> Method:
        own: dict[str, Method] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": _ping,
        }
        method = own.get(name) or self._offer.methods.get(name)
        if method is None:
            raise RpcError(rpc.METHOD_NOT_FOUND, f"Method {name[:80]!r} not found.")
        return method

    async def _initialize(self, call: RpcCall) -> dict[str, Any]:
        _need_handshake(call)
        return {
            "protocolVersion": call.client.version,
            "capabilities": self._offer.capabilities(call.client),
            "serverInfo": self.info,
            "instructions": self._offer.instructions,
        }

    async def _discover(self, call: RpcCall) -> dict[str, Any]:
        return {
            "supportedVersions": list(versions.STATELESS_VERSIONS),
            "capabilities": self._offer.capabilities(call.client),
            "instructions": self._offer.instructions,
        }


async def _ping(call: RpcCall) -> dict[str, Any]:
    _need_handshake(call)
    return {}


def _need_handshake(call: RpcCall) -> None:
    if call.client.is_stateless:
        text = f"Method {call.request.method!r} not found in this version."
        raise RpcError(rpc.METHOD_NOT_FOUND, text)
