"""A server on loopback that says exactly what a test wants, and a caller for tools that need no
files."""

from __future__ import annotations

import asyncio
import contextlib
import ssl as tls
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import Run, Working
from retinue.core.values import Permissions
from retinue.tools.base import Context, ToolResult

Say = bytes | Callable[[str, asyncio.StreamWriter], Awaitable[None]]


def caller(id: str = "r1", *, key: str = "k", root: str = "r1", **permissions: Any) -> Context:
    spec = RunSpec(id=id, request=RunRequest(agent="a", task="t"), root=root)
    run = Run(id=id, state=Working(calls=None))  # type: ignore[arg-type]
    return Context(
        spec=spec,
        row=run,
        call_id="c",
        index=0,
        key=key,
        called_at=5,
        permissions=Permissions(**permissions),
    )


def page(
    body: bytes | str, type: str = "text/html", status: str = "200 OK", **headers: str
) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = [
        f"HTTP/1.1 {status}",
        f"content-type: {type}",
        f"content-length: {len(data)}",
        "connection: close",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def redirect(to: str) -> bytes:
    return (
        f"HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: "
        "close\r\n\r\n".encode()
    )


class Server:
    """`heard` are the requests in order; `n_connects` also counts those that said nothing."""

    def __init__(self) -> None:
        self.port = 0
        self.n_connects = 0
        self.heard: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def allow(self) -> tuple[str, ...]:
        return (f"127.0.0.1:{self.port}",)


@contextlib.asynccontextmanager
async def serving(
    says: Say | dict[str, Say],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ssl: tls.SSLContext | None = None,
) -> AsyncIterator[Server]:
    """Says one thing for all, or one for each path."""
    server = Server()

    tasks: list[asyncio.Task[Any] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.n_connects += 1
        tasks.append(asyncio.current_task())
        # A case may end while its server is still talking: then this is cancelled.
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
        ):
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            server.heard.append(request)
            path = request.split(" ")[1]
            say = (
                says.get(path, page("nothing here", status="404 Not Found"))
                if isinstance(says, dict)
                else says
            )
            if isinstance(say, bytes):
                writer.write(say)
                await writer.drain()
            else:
                await say(path, writer)
        writer.close()

    listening = await asyncio.start_server(answer, host, port, ssl=ssl)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await asyncio.sleep(0)
        talking = [task for task in tasks if task is not None and not task.done()]
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
        await asyncio.sleep(0)


async def told(tool: Any, url: str, who: Context | None = None, **args: Any) -> ToolResult:
    answer = await tool.run(who or caller(), {"url": url, **args})
    assert isinstance(answer, ToolResult)
    return answer
