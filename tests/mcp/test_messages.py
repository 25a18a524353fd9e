"""What is no message, and what is asked for in the wrong way, gets the error of the
specification; the server goes on, and writes nothing but messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.mcp.rpc_messages import RpcError, read_message
from retinue.mcp.stdio_server import LineReader
from tests.cli.private_home import PrivateHome, private_home
from tests.mcp.odd_messages import fuzzed
from tests.mcp.raw_client import TASKS, RawClient, envelope


@pytest.mark.parametrize(
    ("line", "code", "id"),
    [
        (b"{", -32700, None),
        (b'"\xff"', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"a\\ud800"}', -32700, None),
        (b"[" * 5_000, -32700, None),
        (b"[]", -32600, None),
        (b"7", -32600, None),
        (b'{"id":1,"method":"ping"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":"a","method":7}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":"a","method":"m","params":[]}', -32602, "a"),
        (b'{"jsonrpc":"2.0","id":"a"}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":"a","result":7}', -32600, "a"),
    ],
)
def test_what_is_no_message_is_an_error_with_its_id(line: bytes, code: int, id: Any) -> None:
    with pytest.raises(RpcError) as failure:
        read_message(line)
    assert (failure.value.code, failure.value.id) == (code, id)


def test_lines_come_out_whole_however_they_are_cut_and_long_ones_are_left_out() -> None:
    data = b"one\n\n  \ntwo two\n" + b"x" * 50 + b"\nthree\r\nfo"
    for size in range(1, len(data)):
        reader, out = LineReader(20), list[bytes | None]()
        for start in range(0, len(data), size):
            out += reader.feed(data[start : start + size])
        assert out == [b"one", b"two two", None, b"three\r"], size


def test_each_era_has_its_errors(tmp_path: Path) -> None:
    with private_home(tmp_path) as home, RawClient(home) as client:
        assert client.error("tools/list")["code"] == -32602
        assert client.ask("ping") == {}
        meta = envelope()
        assert client.error("ping", {"_meta": meta})["code"] == -32601
        assert client.error("no/such", {"_meta": meta})["code"] == -32601
        wrong = client.error(
            "tools/list", {"_meta": {**meta, "io.modelcontextprotocol/protocolVersion": "1"}}
        )
        assert (wrong["code"], wrong["data"]) == (
            -32022,
            {"supported": ["2026-07-28"], "requested": "1"},
        )
        bare = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        assert client.error("tools/list", {"_meta": bare})["code"] == -32602
        lacking = client.error("tasks/get", {"taskId": "x", "_meta": meta})
        assert lacking["code"] == -32021
        assert lacking["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        reply = client.ask("server/discover", {"_meta": meta})
        assert reply["supportedVersions"] == ["2026-07-28"] and reply["resultType"] == "complete"
        assert reply["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "retinue"
        assert client.error("tools/call", {"name": "nothing", "_meta": meta})["code"] == -32602
        error = client.error("resources/read", {"uri": "retinue://x", "_meta": meta})
        assert error["code"] == -32602
        assert client.initialize("1999-01-01")["protocolVersion"] == "2025-11-25"


def test_thousands_of_odd_messages_do_no_harm(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        result = fuzzed(home, 5_000)
    assert result["errors"] > 500
    assert result["memory_kb"][-1] < result["memory_kb"][0] * 1.3 + 8_000, result


def test_nothing_heavy_is_loaded_before_the_first_work(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    code = """
import json, sys
from retinue.cli.main import main
main(["mcp", "serve"])
sys.stderr.write(json.dumps(list(sys.modules)))
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        input=b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":'
        + json.dumps(envelope()).encode()
        + b"}}\n",
        env=home.env,
        cwd=home.project,
        capture_output=True,
    )
    assert len(json.loads(process.stdout)["result"]["tools"]) == 7
    loaded = set(json.loads(process.stderr[process.stderr.index(b"[") :]))
    heavy = {"mcp", "pydantic", "starlette", "aiohttp", "rich", "retinue.api", "retinue.core.spec"}
    assert not loaded & heavy


def test_the_first_answer_comes_at_once(tmp_path: Path) -> None:
    """The limit is 500 ms on a quiet machine. Here the time counts that the process has used: on a
    busy machine the clock says nothing."""
    home, numbers = PrivateHome(tmp_path), list[float]()
    for _ in range(3):
        with RawClient(home) as client:
            client.ask("server/discover", {"_meta": envelope()})
            path = Path(f"/proc/{client.process.pid}/stat")
            ticks = path.read_text().rpartition(")")[2].split()[11:13]
            numbers.append(sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"))
    assert min(numbers) < 1.0
