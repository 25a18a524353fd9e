"""MCP over HTTP: the same server, behind the host's own checks."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from retinue.testing import call
from tests.cli.private_home import Gate, private_home
from tests.mcp.http_guest import ALICE, BOB, post, request, served
from tests.mcp.official_client import ERAS
from tests.mcp.raw_client import envelope


def writer(request: Any) -> Any:
    results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
    return results[-1].text if results else call("write", path="made.txt", content="hello")


@pytest.mark.parametrize("mode", ERAS)
def test_the_official_client_works_over_http(tmp_path: Path, mode: str) -> None:
    async def elicit(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"allow": True})

    async def main(url: str) -> None:
        headers = {"Authorization": f"Bearer {ALICE}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport, mode=mode, elicitation_callback=elicit) as client:
                assert len((await client.list_tools()).tools) == 7
                result = await client.call_tool("delegate", {"tasks": ["write it"]})
                (agent,) = result.structured_content["agents"]
                assert agent["state"] == "completed", agent

    with private_home(tmp_path, writer) as home, served(home) as url:
        asyncio.run(main(url))
        assert (home.project / "made.txt").read_text() == "hello"


def test_the_checks_of_the_host_come_first(tmp_path: Path) -> None:
    with private_home(tmp_path) as home, served(home) as url:
        listing = request("tools/list")
        modern = {"Mcp_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/list"}
        assert post(url, listing, **modern)[0] == 200
        assert post(url, listing, token="wrong-0123456789abcdef", **modern)[0] == 401
        assert post(url, listing, token=BOB, **modern)[0] == 403
        assert post(url, listing, Host="evil.example", **modern)[0] == 421
        assert post(url, listing, Origin="http://evil.example", **modern)[0] == 403
        code, body = post(url, listing, **{**modern, "Mcp_Method": "tools/call"})
        assert code == 400 and json.loads(body)["error"]["code"] == -32020
        missing = request("tools/list", meta={})
        code, body = post(url, missing, **modern)
        assert code == 400 and json.loads(body)["error"]["code"] == -32602
        code, body = post(url, request("no/such"), **{**modern, "Mcp_Method": "no/such"})
        assert code == 404 and json.loads(body)["error"]["code"] == -32601
        old = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert post(url, old)[0] == 400
        assert post(url, old, Mcp_Session_Id="guessed")[0] == 404


def test_who_closes_the_stream_of_a_stateless_request_stops_its_agents(tmp_path: Path) -> None:
    gate = Gate("Done.")
    with private_home(tmp_path, gate) as home, served(home) as url:
        host, port = re.findall(r"//(.*):(\d+)/", url)[0]
        meta = envelope(progressToken="p")
        body = json.dumps(
            request("tools/call", meta=meta, name="delegate", arguments={"tasks": ["think"]})
        )
        head = [
            "POST /mcp HTTP/1.1",
            f"Host: {host}:{port}",
            f"Authorization: Bearer {ALICE}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            "Mcp-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/call",
            "Mcp-Name: delegate",
            f"Content-Length: {len(body)}",
        ]
        with socket.create_connection((host, int(port))) as line:
            line.sendall("\r\n".join([*head, "", body]).encode())
            assert b"text/event-stream" in line.recv(4096)
            assert gate.reached.wait(60)
        home.until(lambda: home.runs()[0]["state"] == "cancelled")


def test_each_user_has_the_budget_that_the_server_was_given(tmp_path: Path) -> None:
    gate, flags = Gate("Done."), ("--mcp-max-tokens", "60000", "--mcp-max-agents", "2")
    with private_home(tmp_path, gate) as home, served(home, *flags) as url:
        modern = {"Mcp_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call"}

        def delegate(*tasks: str) -> dict[str, Any]:
            value = {"tasks": list(tasks), "background": True}
            body = request("tools/call", name="delegate", arguments=value)
            code, data = post(url, body, Mcp_Name="delegate", **modern)
            assert code == 200
            # On a slow machine it comes as a stream.
            text = data.decode().rpartition("data: ")[2]
            result: dict[str, Any] = json.loads(text)["result"]
            return result

        assert "you may have 2" in delegate("a", "b", "c")["content"][0]["text"]
        assert not delegate("one")["isError"]
        assert "held by open agents" in delegate("two")["content"][0]["text"]


def test_a_stream_of_changes_does_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    with private_home(tmp_path) as home, served(home) as url:
        host, port = re.findall(r"//(.*):(\d+)/", url)[0]
        body = json.dumps(request("subscriptions/listen", notifications={}))
        head = [
            "POST /mcp HTTP/1.1",
            f"Host: {host}:{port}",
            f"Authorization: Bearer {ALICE}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            "Mcp-Protocol-Version: 2026-07-28",
            "Mcp-Method: subscriptions/listen",
            f"Content-Length: {len(body)}",
        ]
        line = socket.create_connection((host, int(port)))
        line.sendall("\r\n".join([*head, "", body]).encode())
        pieces = b""
        while b"subscriptions/acknowledged" not in pieces:
            pieces += line.recv(4096)
    with line:
        assert b"Internal" not in pieces
        while piece := line.recv(4096):  # the server has ended, so the stream ends
            assert b"error" not in piece
