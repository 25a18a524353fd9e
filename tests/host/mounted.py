"""A user's own Starlette service, with a page of its own and the HTTP API mounted beside it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route

from retinue import Agent, Retinue
from retinue.server.mounting import asgi_app
from retinue.testing import Scripted
from tests.host.served import TOKENS, Served
from tests.waiting import SECONDS


@dataclass
class Mounted(Served):
    """`texts` are put into the page in the place of their names."""

    texts: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def mounted_service(page: str, report: Callable[[Any], None]) -> Iterator[Mounted]:
    ready, results = threading.Event(), list[Any]()

    async def show(request: Request) -> Response:
        text = page
        for name, value in results[0].texts.items():
            text = text.replace(name, value)
        return HTMLResponse(text)

    async def take(request: Request) -> Response:
        report(json.loads(await request.body()))
        return Response(status_code=204)

    async def main() -> None:
        lead = Agent("main", model=Scripted(["Done."]))
        async with Retinue(None, agents=[lead], workspace="/") as retinue:
            guard = asgi_app(retinue, [lead], tokens=TOKENS)
            routes = [Route("/page", show), Route("/report", take, methods=["POST"])]
            app = Starlette(routes=[*routes, Mount("/", guard)])
            config = uvicorn.Config(
                app, log_config=None, lifespan="off", timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(config)
            server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port, loop = listener.getsockname()[1], asyncio.get_running_loop()
                results.extend([Mounted(port, retinue, loop, guard), server])
                ready.set()
                await server.serve([listener])

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(SECONDS)
    try:
        yield results[0]
    finally:
        results[1].should_exit = True
        thread.join(SECONDS)
