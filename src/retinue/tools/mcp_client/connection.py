"""A connection to a server: matches replies to requests, detects the protocol version, and answers
or drops what the server sends unasked."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from retinue.core.redaction import Redactor
from retinue.tools.mcp_client.http_headers import header_value
from retinue.tools.mcp_client.protocol import (
    HANDSHAKE,
    METHOD_NOT_FOUND,
    MODERN,
    UNSUPPORTED_VERSION,
    Era,
    Fault,
    McpError,
    ServerLimits,
    SessionGone,
    encode,
)
from retinue.tools.mcp_client.server_info import (
    META,
    NAMED,
    ServerInfo,
    cancel_note,
    error_note,
    hello_of,
    is_only_modern,
    own_name,
    raise_error,
    supported_versions,
)
from retinue.tools.mcp_client.transports.base import Transport, Unreadable

MAX_REPLIES = 32
MAX_PAGES = 100


@dataclass(slots=True)
class PendingRequest:
    """A request without an answer yet. `alive_at` moves with its progress."""

    answer: asyncio.Future[dict[str, Any]]
    alive_at: float
    progress: float = float("-inf")


@dataclass(slots=True)
class McpConnection:
    """Open it, ask it, close it. `changed` is called when the server says that its tools have
    changed; `gone` says why nothing will come. With `roots` the server gets them when it asks."""

    transport: Transport
    limits: ServerLimits
    roots: Sequence[str] = ()
    client: Mapping[str, str] = field(default_factory=own_name)
    changed: Callable[[], None] = lambda: None
    redactor: Redactor = field(default_factory=Redactor)
    hello: ServerInfo | None = None
    gone: str = ""
    n_unreadable: int = 0
    too_large: list[str] = field(
        default_factory=list
    )  # the names of tools whose definitions are not taken
    _pending: dict[int, PendingRequest] = field(default_factory=dict)
    _replies: set[asyncio.Task[None]] = field(default_factory=set)
    _n: int = 0
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _generation: int = 0

    # opening

    async def open(self, seconds: float, era: Era | None = None) -> ServerInfo:
        """Connect and agree on a version. `era` is what this server spoke last time."""
        try:
            async with asyncio.timeout(seconds):
                await self.transport.open(self._receive, self._lose)
                self.hello = await (self._initialize() if era == "handshake" else self._discover())
        except TimeoutError:
            raise McpError(
                "timeout", f"the server did not respond within {seconds:g} s of its start"
            ) from None
        return self.hello

    async def _discover(self) -> ServerInfo:
        """Ask in the new way. A server that answers anything but yes is asked in the old way. A
        server that does not answer is asked in both ways: a slow server answers one of the two, and
        an old one that ignores what it does not know the second."""
        discovery = asyncio.create_task(self._ask_versions())
        try:
            is_silent = True
            while is_silent and not discovery.done():
                await asyncio.wait({discovery}, timeout=self.limits.discover_seconds)
                is_silent = self.transport.is_logging_in
            if not discovery.done():
                shaken = asyncio.create_task(self._initialize())
                try:
                    return await self._either(discovery, shaken)
                finally:
                    await cancel_note(shaken)
            return discovery.result()
        except McpError as error:
            if self.gone or error.fault in ("auth", "start") or is_only_modern(error):
                raise
            return await self._initialize()
        finally:
            await cancel_note(discovery)

    async def _either(
        self, discovery: asyncio.Task[ServerInfo], shaken: asyncio.Task[ServerInfo]
    ) -> ServerInfo:
        await asyncio.wait({discovery, shaken}, return_when=asyncio.FIRST_COMPLETED)
        if discovery.done() and discovery.exception() is None:
            return discovery.result()
        await asyncio.wait({shaken})
        error = shaken.exception()
        if error is not None:
            # A slow server of today refuses the handshake, and may still answer what came first.
            await asyncio.wait({discovery}, timeout=self.limits.discover_seconds)
            if discovery.done() and discovery.exception() is None:
                return discovery.result()
        if isinstance(error, McpError) and error.code == UNSUPPORTED_VERSION:
            # It was slow, has read both by now, and goes with what it has read first.
            return await self._ask_versions()
        return shaken.result()

    async def _ask_versions(self) -> ServerInfo:
        try:
            answer = await self._raw("server/discover", {}, MODERN[0])
        except McpError as error:
            both = [v for v in MODERN if v in supported_versions(error)]
            if error.code != UNSUPPORTED_VERSION or not both:
                raise
            answer = await self._raw("server/discover", {}, both[0])
        offered = answer.get("supportedVersions")
        both = [v for v in MODERN if isinstance(offered, list) and v in offered]
        if not both:
            raise McpError("protocol", "the server supports none of the current protocol versions")
        about = answer.get("_meta")
        return hello_of(
            "modern",
            both[0],
            answer,
            about.get(f"{META}serverInfo") if isinstance(about, dict) else None,
        )

    async def _initialize(self) -> ServerInfo:
        self.transport.forget()
        params = {
            "protocolVersion": HANDSHAKE[0],
            "capabilities": self._capabilities(),
            "clientInfo": dict(self.client),
        }
        answer = await self._raw("initialize", params, "")
        version = answer.get("protocolVersion")
        if version not in HANDSHAKE:
            raise McpError(
                "protocol",
                f"the server speaks protocol {str(version)[:40]!r}; supported: "
                f"{', '.join(HANDSHAKE)}",
            )
        self.hello = hello_of("handshake", version, answer, answer.get("serverInfo"))
        try:
            await self.transport.send(
                {"jsonrpc": "2.0", "method": "notifications/initialized"}, self._headers(version)
            )
        except SessionGone:
            raise McpError(
                "protocol", "the server dropped the session right after it was opened"
            ) from None
        return self.hello

    def _capabilities(self) -> dict[str, Any]:
        return {"roots": {}} if self.roots else {}

    # asking

    async def tools(self, seconds: float) -> list[dict[str, Any]]:
        """The definitions of all tools, page by page. A cursor that comes again, or a page too
        many, ends it."""
        definitions: list[dict[str, Any]] = []
        self.too_large = []
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        n_bytes = 0
        for _ in range(MAX_PAGES):
            page = await self.request("tools/list", params, seconds=seconds)
            listed = page.get("tools")
            for tool in listed if isinstance(listed, list) else []:
                n_bytes += (size := len(encode(tool)))
                if isinstance(tool, dict) and size <= 4 * self.limits.schema_bytes:
                    definitions.append(tool)
                elif isinstance(tool, dict) and len(self.too_large) < self.limits.tools:
                    self.too_large.append(str(tool.get("name"))[:100])
            cursor = page.get("nextCursor")
            is_much = len(definitions) > self.limits.tools or n_bytes > self.limits.message_bytes
            if not isinstance(cursor, str) or cursor in cursors or is_much:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        return definitions

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        seconds: float,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """One request and its result. A session that the server has forgotten is begun anew,
        once."""
        if self.hello is None:
            raise McpError("closed", "the connection is not open")
        async with self._renewing:  # nothing is sent while a new session is being agreed on
            generation = self._generation
        try:
            return await self._raw(method, params, self.hello.version, seconds, headers or {})
        except SessionGone:
            async with self._renewing:
                if self._generation == generation:
                    await self._renew(seconds)
        try:
            return await self._raw(method, params, self.hello.version, seconds, headers or {})
        except SessionGone:
            raise McpError(
                "lost", "the server dropped the session right after it was opened"
            ) from None

    async def _renew(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                self.hello = await self._initialize()
        except TimeoutError:
            raise McpError("timeout", f"the server did not restart within {seconds:g} s") from None
        self._generation += 1

    def _headers(
        self, version: str, method: str = "", params: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": version} if version else {}
        if version in MODERN and method:
            headers["Mcp-Method"] = method
            name = (params or {}).get(NAMED.get(method, ""))
            if isinstance(name, str):
                headers["Mcp-Name"] = header_value(name)
        return headers

    async def _raw(
        self,
        method: str,
        params: Mapping[str, Any],
        version: str,
        seconds: float = 0.0,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Without `seconds` the calling function sets the limit."""
        if self.gone:
            raise McpError("lost", self.gone)
        self._n += 1
        id, loop = self._n, asyncio.get_running_loop()
        pending = self._pending[id] = PendingRequest(loop.create_future(), loop.time())
        body = dict(params)
        meta: dict[str, Any] = {"progressToken": id} if method == "tools/call" else {}
        if version in MODERN:
            meta |= {
                f"{META}protocolVersion": version,
                f"{META}clientInfo": dict(self.client),
                f"{META}clientCapabilities": self._capabilities(),
            }
        if meta:
            body["_meta"] = meta
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": body}
        all_headers = {**self._headers(version, method, params), **(headers or {})}
        sending = asyncio.create_task(self.transport.send(message, all_headers))
        is_answered = False
        try:
            answer = await self._wait(pending, sending, seconds)
            is_answered = True
            return answer
        except (McpError, SessionGone) as error:
            is_answered = not (isinstance(error, McpError) and error.fault == "timeout")
            raise
        finally:
            self._pending.pop(id, None)
            if pending.answer.done():
                pending.answer.exception()  # no one may have come to see it
            await self._let_go(id, method, version, sending, is_answered)

    async def _wait(
        self, pending: PendingRequest, sending: asyncio.Task[None], seconds: float
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting: set[asyncio.Future[Any]] = {pending.answer, sending}
        while not pending.answer.done():
            seconds_left = None
            if seconds:
                most = max(seconds, self.limits.call_seconds_most)
                end = min(pending.alive_at + seconds, began + most)
                seconds_left = end - loop.time()
                if seconds_left <= 0:
                    why = f"the server did not respond within {seconds:g} s"
                    if end == began + most:
                        why = f"the call took longer than {most:g} s"
                    raise McpError("timeout", why, is_open=True)
            await asyncio.wait(waiting, timeout=seconds_left, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not pending.answer.done():
                raise_error(sending)
                if self.transport.is_inline:
                    raise McpError("lost", "the server's answer ended too early", is_open=True)
                waiting = {pending.answer}
        return pending.answer.result()

    async def _let_go(
        self, id: int, method: str, version: str, sending: asyncio.Task[None], is_answered: bool
    ) -> None:
        """Say that an answer is no longer wanted. Over HTTP the new versions see the end of the
        connection; the two requests that open a connection may not be cancelled."""
        is_told = is_answered or method in ("initialize", "server/discover") or bool(self.gone)
        if not is_told and not (self.transport.is_inline and version in MODERN):
            note = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": id, "reason": "the caller no longer waits"},
            }
            self._later(note, version)
        if not sending.done():
            sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    # what comes in

    def _receive(self, message: Any) -> bool:
        if isinstance(message, list):  # a batch, as 2025-03-26 knew them
            return any([self._receive(m) for m in message[:1_000] if not isinstance(m, list)])
        if isinstance(message, Unreadable):
            return self._unreadable(message)
        if not isinstance(message, dict):
            self.n_unreadable += 1
            return False
        message = self.redactor.clean_tree(message)  # before anything of it is cut
        method, id = message.get("method"), message.get("id")
        if isinstance(method, str):
            if "id" in message:
                return self._take_request(method, id)
            return self._noted(method, message.get("params"))
        pending = (
            self._pending.get(id) if isinstance(id, int) and not isinstance(id, bool) else None
        )
        if pending is None or pending.answer.done():
            return False
        error, result = message.get("error"), message.get("result")
        if isinstance(error, dict):
            pending.answer.set_exception(error_note(error))
        elif isinstance(result, dict):
            pending.answer.set_result(result)
        else:
            pending.answer.set_exception(
                McpError(
                    "protocol",
                    "the server's answer has neither a result nor an error",
                    is_open=True,
                )
            )
        return True

    def _unreadable(self, what: Unreadable) -> bool:
        """It fails the request it belongs to. Without an id it can belong to one only if just one
        is open."""
        self.n_unreadable += 1
        id = what.id
        if id is None and what.is_too_large and len(self._pending) == 1:
            id = next(iter(self._pending))
        pending = None if id is None else self._pending.get(id)
        if pending is None or pending.answer.done():
            return False
        fault: Fault = "too_large" if what.is_too_large else "protocol"
        pending.answer.set_exception(
            McpError(fault, f"the server's answer was dropped: {what}", is_open=True)
        )
        return True

    def _noted(self, method: str, params: Any) -> bool:
        if method == "notifications/tools/list_changed":
            self.changed()
        elif method == "notifications/progress" and isinstance(params, dict):
            token, progress = params.get("progressToken"), params.get("progress")
            pending = self._pending.get(token) if isinstance(token, int) else None
            # A whole number may be too large for a float.
            amount = min(progress, 1e300) if isinstance(progress, int | float) else -math.inf
            if pending is not None and amount > pending.progress:
                pending.progress, pending.alive_at = (
                    float(amount),
                    asyncio.get_running_loop().time(),
                )
        return False

    def _take_request(self, method: str, id: Any) -> bool:
        """Requests of the server. What we have not offered is refused by the rules; a flood of them
        is not answered."""
        if (
            len(self._replies) >= MAX_REPLIES
            or not isinstance(id, int | str)
            or (isinstance(id, str) and len(id) > 256)
        ):
            return False
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": id}
        if method == "ping":
            answer["result"] = {}
        elif method == "roots/list" and self.roots:
            answer["result"] = {
                "roots": [{"uri": uri, "name": uri.rsplit("/", 1)[-1]} for uri in self.roots]
            }
        else:
            answer["error"] = {
                "code": METHOD_NOT_FOUND,
                "message": f"this client does not support {method[:100]}",
            }
        self._later(answer, self.hello.version if self.hello else "")
        return False

    def _later(self, message: dict[str, Any], version: str) -> None:
        async def send() -> None:
            with contextlib.suppress(McpError, SessionGone, TimeoutError):
                async with asyncio.timeout(10.0):
                    await self.transport.send(message, self._headers(version))

        task = asyncio.create_task(send())
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    def _lose(self, reason: str) -> None:
        self.gone = self.gone or reason
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(McpError("lost", self.gone, is_open=True))

    async def close(self) -> None:
        self._lose("the connection was closed")
        for task in self._replies:
            task.cancel()
        await asyncio.gather(*self._replies, return_exceptions=True)
        await self.transport.close()
