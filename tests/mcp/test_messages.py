"""What is no message, and what is asked for in the wrong way, gets the error of the
specification; the server goes on, and writes nothing but messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
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
    assert len(loaded) < 320  # 258 when this was written, of which 54 are ours


def test_the_first_answer_costs_less_than_the_time_that_clients_give(tmp_path: Path) -> None:
    """500 ms on a machine at rest, where a start is all computing: that is what is counted here,
    because a busy machine hardly changes it. Beside it stands what every program in Python pays
    that waits for input."""
    home = PrivateHome(tmp_path)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "server/discover"}
    line = json.dumps({**hello, "params": {"_meta": envelope()}}).encode() + b"\n"
    server, least = ("-m", "retinue", "mcp", "serve"), ("-c", "import asyncio; input()")
    costs = [(_cost(home, server, line), _cost(home, least, line)) for _ in range(3)]
    cost, base = (median(column) for column in zip(*costs, strict=True))
    assert cost < 0.5 and cost < 5 * base, costs


def _cost(home: PrivateHome, command: tuple[str, ...], line: bytes) -> float:
    """Seconds of computing from the start of a process to its end after one line."""
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=home.project,
        env=home.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdout:
        process.stdin.write(line)
        process.stdin.close()
        process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime
