"""A run that goes on is never left without a word: whatever happens to the command that started it,
its user learns the run's id and how to find it again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.host import client
from tests.cli.private_home import Gate, is_alive, private_home
from tests.waiting import SECONDS

SERVER = """
import json, sys

def tool(name, n):
    properties = {f"property_{i}": {"type": "string", "description": "x" * 90} for i in range(n)}
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": "d", "inputSchema": schema}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    done = {}
    if asked["method"] == "initialize":
        about = {"name": "s", "version": "1"}
        done = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if asked["method"] == "tools/list":
        done = {"tools": [tool("small", 1), tool("large", 1_000), tool("huge", 10_000)]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": done}), flush=True)
"""


def names(request: Any) -> str:
    return " ".join(sorted(t.name for t in request.tools if t.name.startswith("mcp__"))) or "none"


@pytest.mark.parametrize("format", ["text", "stream-json"])
def test_a_tool_with_a_too_large_schema_is_left_out_with_a_warning(
    tmp_path: Path, format: str
) -> None:
    with private_home(tmp_path, names) as home:
        (tmp_path / "server.py").write_text(SERVER)
        server = {"command": sys.executable, "args": ["-I", "-S", str(tmp_path / "server.py")]}
        text = json.dumps({"mcpServers": {"s": server}})
        result = home.real("run", "--output-format", format, "--mcp-config", text, "hello")
        assert result.returncode == 0, result.stderr
        assert "mcp__s__small" in result.stdout and "mcp__s__large" not in result.stdout
        assert "MCP tool s/large is withheld: it cannot be used" in result.stderr
        assert "MCP tool s/huge is withheld: its definition is larger than" in result.stderr
        assert "Error" not in result.stderr and "defect" not in result.stderr
        assert "large: withheld" in home.ok("mcp", "list", "--mcp-config", text)


ABSURD = """
wide = {"$defs": {"D": {"enum": ["x" * 200 + str(i) for i in range(1_000)]}}}
wide["properties"] = {f"p{i}": {"$ref": "#/$defs/D"} for i in range(1_000)}
deep = [0] * 20_000
for _ in range(100):
    deep = [deep]
schemas = {
    "nameless": {"properties": {"a": True}, "required": ["a", {}]},
    "listed": {"anyOf": [{"properties": {"a": {}}, "required": [["a"]]}]},
    "wide": wide,
    "deep": {"x": deep},
    "deeper": {"x": deep, "y": deep},
    "no": False,
}
absurd = [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]
absurd += [{"name": 5}, {"name": ["a"]}, None, "tool", {"name": "small", "inputSchema": []}]
"""


def test_absurd_definitions_cost_neither_the_run_nor_the_next_one(tmp_path: Path) -> None:
    """A required argument without a name ended every run with a TypeError; a deep one spoiled the
    approvals."""
    with private_home(tmp_path, names) as home:
        server = SERVER.replace("def tool", f"{ABSURD}\ndef tool", 1).replace(
            'tool("huge", 10_000)', "*absurd"
        )
        (tmp_path / "server.py").write_text(server)
        text = json.dumps(
            {
                "mcpServers": {
                    "s": {
                        "command": sys.executable,
                        "args": ["-I", "-S", str(tmp_path / "server.py")],
                    }
                }
            }
        )
        for _ in range(2):
            result = home.real("run", "--mcp-config", text, "hello")
            assert result.returncode == 0, result.stderr
            assert {"mcp__s__small", "mcp__s__nameless", "mcp__s__listed", "mcp__s__deep"} <= set(
                result.stdout.split()
            )
            assert "MCP tool s/wide is withheld: it cannot be used" in result.stderr
            assert "Error" not in result.stderr and "failed" not in result.stderr
            home.ok("host", "stop")


def test_more_tools_than_a_model_takes_are_left_out_and_told(tmp_path: Path) -> None:
    """OpenAI refuses a request with more than 128."""
    with private_home(
        tmp_path, lambda request: f"{len(request.tools)} tools. {request.system}"
    ) as home:
        many = SERVER.replace('tool("huge", 10_000)', '*(tool(f"t{n}", 1) for n in range(150))')
        (tmp_path / "server.py").write_text(many)
        server = {"command": sys.executable, "args": ["-I", "-S", str(tmp_path / "server.py")]}
        text = json.dumps({"mcpServers": {"s": server}})
        result = home.real("run", "--model", "openai:m", "--mcp-config", text, "hello")
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith("128 tools.") and "are not offered" in result.stdout
        assert (
            "are not offered, because this model accepts at most 128" in result.stderr
            and "includeTools" in result.stderr
        )


def test_a_command_that_fails_in_the_middle_of_a_run_says_which_run_goes_on(tmp_path: Path) -> None:
    gate = Gate("Done.")
    with private_home(tmp_path, gate) as home, open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "retinue", "run", "--json", "hello"]
        piped: Any = {"stdout": full, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.run(
            command, cwd=home.project, env=home.env, timeout=SECONDS, check=False, **piped
        )
        assert process.returncode == 1 and "No space left" in process.stderr
        (run,) = home.runs()
        match = re.search(r"Run (\w+) may still be running", process.stderr)
        assert match is not None and match[1] == run["short"], process.stderr
        assert (
            f"retinue attach {run['short']}" in process.stderr
            and f"retinue cancel {run['short']}" in process.stderr
        )
        home.ok("cancel", run["short"])


def test_a_host_that_does_not_answer_is_told_of_and_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "GREETING_SECONDS", 1.0)
    with private_home(tmp_path, Gate("Done.")) as home:
        home.ok("run", "--bg", "hello")
        pid = home.host_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            for command in (("ps",), ("cancel", "latest")):
                result = home.run(*command)
                assert command == ("ps",) or (
                    result.returncode == 1 and "Run `retinue host stop`" in result.stderr
                )
            stopped = home.run("host", "stop")
            assert (
                stopped.returncode == 0
                and f"Host {pid} did not respond and was killed" in stopped.stderr
            )
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        assert not is_alive(pid)
