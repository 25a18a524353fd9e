"""Many clients of one stream: `python -m tests.host.streams 500 200` says whether each got every
event in order, and what that cost the server in memory."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SERVER = """
import asyncio, os, socket, sys
from retinue import Agent, Retinue, tool
from retinue.host.host_server import HostServer
from retinue.host.request_limits import RequestLimits
from retinue.server.mounting import AccessToken, asgi_app
from retinue.testing import Scripted, call

store, gate, n_turns, port = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

@tool(restart="pure")
async def tick(n: int) -> str:
    "Wait for the gate, then say a number."
    while not os.path.exists(gate):
        await asyncio.sleep(0.02)
    return f"tick {n}"

async def main():
    model = Scripted(lambda q: call("tick", n=q.turn) if q.turn < n_turns else "Done.")
    lead = Agent("main", model=model, tools=[tick], max_turns=n_turns + 5)
    async with Retinue(store, agents=[lead], workspace="/") as retinue:
        app = asgi_app(retinue, [lead], tokens=[AccessToken("t" * 20, ("admin",))])
        with socket.create_server(("127.0.0.1", port), backlog=1024) as listener:
            async with HostServer(app).serving(listener):
                print(listener.getsockname()[1], flush=True)
                await asyncio.sleep(3600)

asyncio.run(main())
"""
HEAD = b"host: localhost\r\nauthorization: Bearer tttttttttttttttttttt\r\n"


@dataclass
class StreamServer:
    """A server in a process of its own."""

    folder: Path
    n_turns: int
    port: int = 0

    def start(self) -> None:
        store, gate = str(self.folder / "runs.db"), str(self.folder / "gate")
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, store, gate, str(self.n_turns), str(self.port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def open(self) -> None:
        (self.folder / "gate").touch()

    def memory(self, field: str = "VmRSS") -> int:
        """In bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024

    async def begin(self) -> str:
        body = b'{"task": "count"}'
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        writer.write(b"POST /api/v1/runs HTTP/1.1\r\n" + HEAD + head % len(body) + body)
        answer = await reader.read()
        writer.close()
        run: str = json.loads(answer.partition(b"\r\n\r\n")[2])["run"]
        return run


async def follow(
    port: int, run: str, connected: asyncio.Event, after: int = 0, until: int | None = None
) -> tuple[list[int], bool]:
    """The ids that one client gets, and whether it saw the end; `until` breaks off after so many.
    What comes in halves counts for nothing, as in a browser."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    again = b"last-event-id: %d\r\n" % after if after else b""
    path = f"GET /api/v1/runs/{run}/events HTTP/1.0\r\n".encode()
    writer.write(path + HEAD + again + b"\r\n")
    ids: list[int] = []
    try:
        await reader.readuntil(b"\r\n\r\n")
        connected.set()
        while until is None or len(ids) < until:
            block = await reader.readuntil(b"\n\n")
            fields = dict(line.split(b": ", 1) for line in block.strip().split(b"\n"))
            if fields.get(b"event") == b"end":
                return ids, True
            if b"id" in fields:
                ids.append(int(fields[b"id"]))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        connected.set()
        writer.close()
    return ids, False


@dataclass(frozen=True)
class StreamResult:
    n_events: int
    n_complete: int
    connected_bytes: int
    peak_bytes: int


async def many(server: StreamServer, n_clients: int) -> StreamResult:
    """All clients connect, then the run goes on, and each must see the same steps."""
    run = await server.begin()
    alone = asyncio.Event()
    first = asyncio.create_task(follow(server.port, run, alone))
    await alone.wait()
    before = server.memory()
    signs = [asyncio.Event() for _ in range(n_clients - 1)]
    tasks = [asyncio.create_task(follow(server.port, run, sign)) for sign in signs]
    await asyncio.gather(*(sign.wait() for sign in signs))
    await asyncio.sleep(0.5)
    connected = server.memory()
    server.open()
    results = [await first, *await asyncio.gather(*tasks)]
    ids, _ = results[0]
    assert ids == sorted(set(ids)) and results[0][1]
    n = sum(other == ids and is_ended for other, is_ended in results)
    peak = server.memory("VmHWM")
    return StreamResult(len(ids), n, connected - before, peak - before)


def main(n_clients: int, n_events: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        server = StreamServer(Path(folder), n_events // 2 + 1)
        server.start()
        try:
            result = asyncio.run(many(server, n_clients))
        finally:
            server.kill()
    figures = {
        "clients": n_clients,
        "events": result.n_events,
        "complete": result.n_complete,
        "connections_mb": round(result.connected_bytes / 1e6, 1),
        "peak_mb": round(result.peak_bytes / 1e6, 1),
        "load": os.getloadavg()[0],
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    return int(result.n_complete != n_clients or result.peak_bytes > 20_000_000)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
