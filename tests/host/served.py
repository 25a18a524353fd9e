"""The HTTP API over a real socket, with agents that follow a script: in a thread of the test."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinue import Agent, Retinue
from retinue.host.access_guard import AccessGuard
from retinue.host.host_server import HostServer
from retinue.host.request_limits import RequestLimits
from retinue.server import AccessToken, asgi_app
from retinue.testing import Scripted
from tests.waiting import SECONDS

ADMIN = "admin-0123456789abcdef"
READER = "reader-0123456789abcdef"
ALICE = "alice-0123456789abcdef"
BOB = "bob-0123456789abcdef"
TOKENS = (
    AccessToken(ADMIN, ("admin",)),
    AccessToken(READER, ("read",), name="reader"),
    AccessToken(ALICE, ("run", "approve"), user="alice"),
    AccessToken(BOB, ("run",), user="bob"),
)


@dataclass
class Reply:
    """A whole reply."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A service on a port of loopback."""

    port: int
    retinue: Retinue
    loop: asyncio.AbstractEventLoop
    guard: AccessGuard

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = ADMIN,
        raw: bytes | None = None,
        **headers: str,
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        sent_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent_headers.setdefault("Authorization", f"Bearer {token}")
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
            sent_headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, data, sent_headers)
            reply = connection.getresponse()
            values = {name.lower(): value for name, value in reply.getheaders()}
            return Reply(reply.status, values, reply.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Reply:
        return self.call("GET", f"/api/v1{path}", **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Reply:
        return self.call("POST", f"/api/v1{path}", {} if body is None else body, **options)

    def new_code(self) -> str:
        return self.guard.keyring.new_code(TOKENS[0].identity)

    def start(self, task: str = "hello", **options: Any) -> str:
        reply = self.post("/runs", {"task": task}, **options)
        assert reply.status == 201, reply
        run: str = reply.json["run"]
        return run

    def finished(self, task: str = "hello", **options: Any) -> str:
        run = self.start(task, **options)
        states = self.post("/wait", {"runs": [run]}, **options).json["states"]
        assert states == {run: "completed"}
        return run


def events_of(body: bytes) -> list[dict[str, str]]:
    """The events of a stream, each as its fields."""
    blocks = body.decode().split("\n\n")
    parts = [dict(line.split(": ", 1) for line in b.split("\n") if line) for b in blocks if b]
    return [fields for fields in parts if "data" in fields]


@contextlib.contextmanager
def served(
    script: Any = ("Done.",),
    *,
    store: Path | None = None,
    agents: Sequence[Agent] = (),
    limits: RequestLimits | None = None,
    port: int = 0,
    workspace: Path | str = "/",
    **runtime: Any,
) -> Iterator[Served]:
    """`runtime` has further options of the runtime itself."""
    if "limits_of_runs" in runtime:
        runtime["limits"] = runtime.pop("limits_of_runs")

    result = tuple(agents) or (Agent("main", model=Scripted(script)),)
    ready, started = threading.Event(), list[Any]()

    async def main() -> None:
        leave = asyncio.Event()
        with socket.create_server(("127.0.0.1", port)) as listener:
            async with Retinue(
                store, agents=result, workspace=str(workspace), **runtime
            ) as retinue:
                app = asgi_app(retinue, result, tokens=TOKENS, limits=limits)
                async with HostServer(app).serving(listener):
                    number = listener.getsockname()[1]
                    started.append(
                        (Served(number, retinue, asyncio.get_running_loop(), app), leave)
                    )
                    ready.set()
                    await leave.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            started.append(error)
            raise
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(SECONDS)
    if isinstance(started[0], BaseException):
        raise started[0]
    service, leave = started[0]
    try:
        yield service
    finally:
        service.loop.call_soon_threadsafe(leave.set)
        thread.join(SECONDS)
