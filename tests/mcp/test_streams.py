"""The streams of a client: only messages are written to it, whatever goes wrong on this side, and a
client that closes or forgets an end keeps no process alive."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.host import requests
from retinue.mcp.agent_work import AgentWork
from retinue.mcp.guests import Guest
from retinue.mcp.protocol_versions import ClientFacts
from retinue.mcp.rpc_messages import RpcRequest
from retinue.mcp.rpc_server import RpcCall, RpcSession
from retinue.mcp.tool_arguments import DelegateArguments
from tests.cli.private_home import PrivateHome, private_home
from tests.mcp.raw_client import RawClient, envelope
from tests.waiting import SECONDS

NOISE = """
import sys, warnings

class Loud:
    def find_spec(self, name, path=None, target=None):
        if name in ("retinue.mcp.guest_calls", "retinue.api"):
            print("a library says hello", flush=True)
            warnings.warn("and warns")

sys.meta_path.insert(0, Loud())
"""


def server(home: PrivateHome) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "retinue", "mcp", "serve"],
        cwd=home.project,
        env=home.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("end", ["stdin closed, nothing read", "stdout closed"])
def test_a_client_that_leaves_an_end_open_keeps_no_server(tmp_path: Path, end: str) -> None:
    """What it has not read fills the pipe, so a line can no longer be written."""
    home = PrivateHome(tmp_path)
    params = {"_meta": envelope()}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    process = server(home)
    assert process.stdin is not None and process.stdout is not None
    try:
        if end == "stdout closed":
            process.stdout.close()
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        else:
            for n in range(60):  # 4 KB each
                process.stdin.write(json.dumps({**message, "id": n}).encode() + b"\n")
            process.stdin.close()
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


def test_what_a_library_prints_is_no_message_and_stops_no_host(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NOISE)
    with private_home(tmp_path) as home:
        home.env["PYTHONPATH"] = os.pathsep.join([str(folder), home.env["PYTHONPATH"]])
        client = RawClient(home)
        client.initialize("2025-06-18")
        assert not client.tool("delegate", tasks=["say it"])["isError"]
        assert client.close() == 0
    assert client.odd == [] and b"a library says hello" in client.errors


@pytest.mark.parametrize("wrong", ["no folder", "configuration", "store"])
def test_a_host_that_cannot_start_is_a_result_that_says_why(tmp_path: Path, wrong: str) -> None:
    with private_home(tmp_path) as home:
        if wrong == "no folder":
            home.env["XDG_DATA_HOME"] = "/proc/nowhere"
        elif wrong == "configuration":
            (home.folder / "config" / "retinue").mkdir()
            (home.folder / "config" / "retinue" / "config.toml").write_text("model = [")
        else:
            home.env["RETINUE_STORE"] = str(tmp_path / "page.txt")
            (tmp_path / "page.txt").write_text("no store")
        client = RawClient(home)
        client.initialize("2025-06-18")
        assert len(client.ask("tools/list")["tools"]) == 7
        result = client.tool("delegate", tasks=["say it"])
        text = result["content"][0]["text"]
        assert result["isError"] and "See its log" not in text
        named = {"no folder": "/proc/nowhere", "configuration": "config.toml", "store": "page.txt"}
        assert named[wrong] in text
        if wrong != "configuration":  # which a host without work does not need
            assert named[wrong] in client.error("resources/list")["message"]
        assert client.close() == 0
    assert client.odd == [] and client.errors == b""


class SlowHost:
    """A link to a host that starts a run when `opened` is set."""

    def __init__(self) -> None:
        self.opened, self.reached = asyncio.Event(), asyncio.Event()
        self.asked: list[Any] = []

    async def ask(self, request: Any, key: str = "") -> Any:
        match request:
            case requests.StartRequest():
                self.reached.set()
                await self.opened.wait()
                self.asked.append(request)
                return {"run": "r1"}
            case requests.CancelRequest():
                await asyncio.sleep(0)
                self.asked.append(request)
                return {}
        return {"runs": [], "next": ""}

    async def guest_key(self) -> bytes:
        return b""


@pytest.mark.parametrize("second", ["the same again", "the client leaves"])
def test_a_request_that_is_taken_back_stops_its_agents_whatever_comes_next(second: str) -> None:
    async def main() -> None:
        host, session = SlowHost(), RpcSession()
        work = AgentWork(host, Guest())

        async def send(message: dict[str, Any]) -> None:
            raise AssertionError(f"nothing is answered: {message}")

        async def never(runs: tuple[str, ...]) -> dict[str, Any]:
            raise AssertionError("it was taken back before")

        call = RpcCall(RpcRequest(1, "tools/call"), ClientFacts("2025-06-18"), session, send)
        begin = work.delegate(DelegateArguments(tasks=("think",)), ())
        task = asyncio.ensure_future(work.started(call, begin, never))
        session.calls[1] = (call, task)
        await host.reached.wait()
        session.cancel(1)
        await asyncio.sleep(0)
        if second == "the same again":
            session.cancel(1)
            host.opened.set()
        else:
            asyncio.get_running_loop().call_later(0.05, host.opened.set)
        await session.leave()
        assert [type(request) for request in host.asked] == [
            requests.StartRequest,
            requests.CancelRequest,
        ]
        assert host.asked[1].runs == ("r1",)

    asyncio.run(main())
