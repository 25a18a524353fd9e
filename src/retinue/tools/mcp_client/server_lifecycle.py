"""The life of one server: starts it, lists and calls its tools, restarts it after a crash, and
gives up in the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Literal

from retinue.core.redaction import Redactor
from retinue.tools.base import ToolResult
from retinue.tools.mcp_client.connection import McpConnection
from retinue.tools.mcp_client.http_headers import argument_headers, marked
from retinue.tools.mcp_client.oauth.server_login import ServerLogin
from retinue.tools.mcp_client.protocol import UNSUPPORTED_VERSION, Era, McpError, ServerLimits
from retinue.tools.mcp_client.result_content import answer, server_question
from retinue.tools.mcp_client.server_config import ServerConfig
from retinue.tools.mcp_client.transports.base import Transport
from retinue.tools.mcp_client.transports.stdio import StdioTransport
from retinue.tools.mcp_client.transports.stdio_lines import environment

State = Literal["disabled", "idle", "ready", "dead", "failed", "changed", "closed"]
INPUT_ROUNDS = 10
TAIL = 1_000


class KeptServer:
    """`listed` is called with the tools' definitions each time they are known anew; `offers` says
    whether a tool may be called now, and if not, why."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        limits: ServerLimits,
        environ: Mapping[str, str],
        cwd: str,
        within: str,
        roots: Sequence[str],
        listed: Callable[[KeptServer], None],
        offers: Callable[[str, str], str],
        redactor: Redactor,
        login: ServerLogin | None = None,
    ) -> None:
        self.config, self.limits, self._redactor = config, limits, redactor
        self.login = login
        self.state: State = "disabled" if config.disabled else "idle"
        self.error = ""
        self.definitions: list[dict[str, Any]] = []
        self.named: dict[str, dict[str, Any]] = {}
        self.connection: McpConnection | None = None
        self.n_starts = 0
        self._environ = environ
        self._cwd = cwd
        self._within = within
        self._roots = roots
        self._listed, self._offers = listed, offers
        self._era: Era | None = None
        self._starting = asyncio.Lock()
        self._opening: asyncio.Task[McpConnection] | None = None
        self._closing = asyncio.Event()
        self._turn = asyncio.Lock()
        self._n_failures = 0
        self._not_before = 0.0
        self._is_stale = False
        self._headers: dict[str, dict[tuple[str, ...], str]] = {}
        self._capabilities: frozenset[str] = frozenset()

    # starting

    async def start(self) -> None:
        """Connect and list the tools; McpError says why not."""
        async with self._starting:
            if self.state in ("idle", "dead", "failed", "closed"):
                await self._start()

    async def _start(self) -> None:
        self.n_starts += 1
        self._opening = asyncio.create_task(self._connected())
        try:
            async with asyncio.timeout(self.config.start_seconds + 5.0):
                connection = await self._opening
        except (McpError, TimeoutError) as error:
            self._fail(
                error
                if isinstance(error, McpError)
                else McpError("timeout", "the server did not start in time")
            )
            raise McpError("start", self.error) from None
        except asyncio.CancelledError:
            if self._closing.is_set():
                raise McpError("closed", "the server was closed while it started") from None
            raise
        finally:
            self._opening = None
        self.connection, self.state, self.error = connection, "ready", ""

    async def _connected(self) -> McpConnection:
        try:
            return await self._connect(self._era)
        except McpError as error:
            if (
                self._era == "handshake" and error.code == UNSUPPORTED_VERSION
            ):  # it has been renewed meanwhile
                self._era = None
                return await self._connect(None)
            # Some old servers end when their first message is not the handshake.
            if self._era is not None or error.fault != "lost" or self.config.kind != "stdio":
                raise
            return await self._connect("handshake")

    async def _connect(self, era: Era | None) -> McpConnection:
        transport = self._transport()
        connection = McpConnection(
            transport,
            self.limits,
            roots=self._roots,
            changed=self._changed,
            redactor=self._redactor,
        )
        try:
            hello = await connection.open(
                self.config.start_seconds, "handshake" if self.config.kind == "sse" else era
            )
            self._era, self._capabilities = hello.era, hello.capabilities
            await self._list(connection)
        except McpError as error:
            await connection.close()
            raise McpError(
                error.fault, self._words(str(error), transport), code=error.code
            ) from None
        except BaseException:
            await connection.close()
            raise
        return connection

    def _transport(self) -> Transport:
        config = self.config
        if config.kind == "stdio":
            env = environment(self._environ, config.env)
            return StdioTransport(
                config.command,
                config.args,
                env=env,
                cwd=self._cwd,
                within=self._within,
                limits=self.limits,
                redactor=self._redactor,
            )
        from retinue.tools.mcp_client.transports.legacy_sse import LegacySseTransport
        from retinue.tools.mcp_client.transports.streamable_http import StreamableHttpTransport

        transport = LegacySseTransport if config.kind == "sse" else StreamableHttpTransport
        return transport(
            config.url,
            config.headers,
            environ=self._environ,
            limits=self.limits,
            login=self.login,
        )

    def _words(self, text: str, transport: Transport) -> str:
        tail = self._redactor.clean(transport.tail())[-TAIL:]
        return self._redactor.clean(f"{text}. Its last output: {tail}" if tail else text)

    def _fail(self, error: McpError) -> None:
        """Each failure in a row doubles the wait before the next try; after the last one there is
        none."""
        self.error = str(error)
        self._n_failures += 1
        pause = min(
            self.limits.backoff_seconds * 2 ** (self._n_failures - 1),
            self.limits.backoff_seconds_most,
        )
        self._not_before = asyncio.get_running_loop().time() + pause
        self.state = "dead" if self._n_failures <= self.limits.restarts else "failed"

    # listing

    def _changed(self) -> None:
        self._is_stale = True

    async def _list(self, connection: McpConnection) -> None:
        self._is_stale = False
        has_tools = connection.hello is None or connection.hello.has_tools
        try:
            async with asyncio.timeout(self.config.start_seconds):
                definitions = await connection.tools(self.config.start_seconds) if has_tools else []
        except TimeoutError:
            raise McpError(
                "timeout",
                f"the server did not list its tools within {self.config.start_seconds:g} s",
            ) from None
        named: dict[str, dict[str, Any]] = {}
        for definition in definitions[: self.limits.tools]:
            name = definition.get("name")
            if isinstance(name, str) and 0 < len(name) <= 256:
                named.setdefault(name, definition)
        self.named, self.definitions = named, [named[name] for name in sorted(named)]
        self._headers = {name: marked(d.get("inputSchema")) for name, d in named.items()}
        self._listed(self)

    async def refresh(self) -> None:
        """List the tools anew, as after a hint that they have changed."""
        if self.connection is not None and not self.connection.gone:
            await self._list(self.connection)

    # calling

    async def call(self, tool: str, args: Mapping[str, Any]) -> ToolResult:
        if self.config.is_parallel:
            return await self._call(tool, args)
        async with self._turn:
            return await self._call(tool, args)

    async def _call(self, tool: str, args: Mapping[str, Any]) -> ToolResult:
        connection = await self._usable()
        if self._is_stale:
            await self.refresh()
        withheld = self._offers(self.config.name, tool)
        if withheld:
            raise McpError("withheld", withheld)
        async with self._guarded(connection):
            return await self._rounds(connection, tool, args)

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One request about something else than tools, and its result."""
        connection = await self._usable()
        async with self._guarded(connection):
            result = await connection.request(method, params, seconds=self.config.call_seconds)
            if result.get("resultType", "complete") != "complete":
                raise McpError("protocol", "the server asked for input, which it cannot get here")
            return result

    def has(self, capability: str) -> bool:
        """Whether the server has said that it offers this, when it was connected last."""
        return capability in self._capabilities

    @contextlib.asynccontextmanager
    async def _guarded(self, connection: McpConnection) -> AsyncIterator[None]:
        """An error has the server's last words, and a connection that is gone is
        dropped."""
        try:
            yield
        except McpError as error:
            if connection.gone and self.connection is connection:
                await self._drop(connection)
            elif error.fault == "refused":
                self._n_failures = 0
            raise McpError(
                error.fault,
                self._words(str(error), connection.transport),
                is_open=error.is_open,
                code=error.code,
            ) from None
        self._n_failures = 0

    async def _rounds(
        self, connection: McpConnection, tool: str, args: Mapping[str, Any]
    ) -> ToolResult:
        """Ask until the result is whole. A server of the new versions may answer that it needs
        information first; it gets what we have."""
        params: dict[str, Any] = {"name": tool, "arguments": dict(args)}
        headers = (
            argument_headers(self._headers.get(tool, {}), args) if self._era == "modern" else {}
        )
        more: dict[str, Any] = {}
        for n in range(INPUT_ROUNDS):
            result = await connection.request(
                "tools/call", {**params, **more}, seconds=self.config.call_seconds, headers=headers
            )
            kind = result.get("resultType", "complete")
            if kind == "complete":
                return answer(result, self.limits)
            if kind != "input_required":
                raise McpError(
                    "protocol",
                    f"the server sent a result of an unsupported kind: {kind!r:.60}",
                    is_open=True,
                )
            responses = self._responses(result.get("inputRequests"))
            if responses is None:
                text = (
                    "The server asked for input that cannot be provided here, and did "
                    "not run the tool:\n"
                )
                hint = (
                    "\nIf the arguments can include it, call the tool again with it. "
                    "Otherwise ask for it, or report that it is missing."
                )
                return ToolResult(text=text + server_question(result) + hint, error=True)
            more = {"inputResponses": responses} if responses else {}
            state = result.get("requestState")
            more |= {"requestState": state} if isinstance(state, str) else {}
            if not responses:
                await asyncio.sleep(min(0.05 * 2**n, 1.0))
        raise McpError(
            "protocol", "the server kept asking for input and never ran the tool", is_open=True
        )

    def _responses(self, requests: Any) -> dict[str, Any] | None:
        if not isinstance(requests, dict):
            return {}
        is_known = all(
            isinstance(r, dict) and r.get("method") == "roots/list" for r in requests.values()
        )
        if not is_known or (requests and not self._roots) or len(requests) > 10:
            return None
        return {key: {"roots": [{"uri": uri} for uri in self._roots]} for key in requests}

    async def _usable(self) -> McpConnection:
        """The connection, made again if the last one is gone: immediately the first time, then
        after growing pauses."""
        async with self._starting:
            connection = self.connection
            if self.state == "ready" and connection is not None:
                if not connection.gone:
                    return connection
                await self._drop(connection)
            if self.state not in ("dead", "idle"):
                raise McpError(
                    "closed" if self.state == "closed" else "start",
                    self.error or f"the server is {self.state}",
                )
            pause = self._not_before - asyncio.get_running_loop().time()
            if pause > 0 and self._n_failures > 1:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(
                        self._closing.wait(), min(pause, self.limits.backoff_seconds_most)
                    )
                    raise McpError("closed", "the server was closed")
            await self._start()
            assert self.connection is not None
            return self.connection

    async def _drop(self, connection: McpConnection) -> None:
        self.connection = None
        self._fail(McpError("lost", self._words(connection.gone, connection.transport)))
        await connection.close()

    async def restart(self) -> None:
        """Start it anew, whatever it was, with all its tries before it."""
        await self.stop("idle")
        self._n_failures = 0
        await self.start()

    async def stop(self, state: State = "closed") -> None:
        self._closing.set()
        if self._opening is not None:
            self._opening.cancel()
        async with self._starting:
            self._closing.clear()
            connection, self.connection = self.connection, None
            if self.state != "disabled":
                self.state = state
            if connection is not None:
                await connection.close()
