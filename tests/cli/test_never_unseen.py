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


def names(heard: Any) -> str:
    return " ".join(sorted(t.name for t in heard.tools if t.name.startswith("mcp__"))) or "none"


@pytest.mark.parametrize("format", ["text", "stream-json"])
def test_a_tool_with_a_too_large_schema_is_left_out_with_a_warning(
    tmp_path: Path, format: str
) -> None:
    with private_home(tmp_path, names) as home:
        (tmp_path / "server.py").write_text(SERVER)
        server = {"command": sys.executable, "args": ["-I", "-S", str(tmp_path / "server.py")]}
        given = json.dumps({"mcpServers": {"s": server}})
        done = home.real("run", "--output-format", format, "--mcp-config", given, "hello")
        assert done.returncode == 0, done.stderr
        assert "mcp__s__small" in done.stdout and "mcp__s__large" not in done.stdout
        assert "MCP tool s/large is withheld: it cannot be used" in done.stderr
        assert "MCP tool s/huge is withheld: its definition is larger than" in done.stderr
        assert "Error" not in done.stderr and "defect" not in done.stderr
        assert "large: withheld" in home.ok("mcp", "list", "--mcp-config", given)


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
        given = json.dumps(
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
            done = home.real("run", "--mcp-config", given, "hello")
            assert done.returncode == 0, done.stderr
            assert {"mcp__s__small", "mcp__s__nameless", "mcp__s__listed", "mcp__s__deep"} <= set(
                done.stdout.split()
            )
            assert "MCP tool s/wide is withheld: it cannot be used" in done.stderr
            assert "Error" not in done.stderr and "failed" not in done.stderr
            home.ok("host", "stop")


def test_more_tools_than_a_model_takes_are_left_out_and_told(tmp_path: Path) -> None:
    """OpenAI refuses a request with more than 128."""
    with private_home(tmp_path, lambda heard: f"{len(heard.tools)} tools. {heard.system}") as home:
        many = SERVER.replace('tool("huge", 10_000)', '*(tool(f"t{n}", 1) for n in range(150))')
        (tmp_path / "server.py").write_text(many)
        server = {"command": sys.executable, "args": ["-I", "-S", str(tmp_path / "server.py")]}
        given = json.dumps({"mcpServers": {"s": server}})
        done = home.real("run", "--model", "openai:m", "--mcp-config", given, "hello")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("128 tools.") and "are not offered" in done.stdout
        assert (
            "are not offered, because this model accepts at most 128" in done.stderr
            and "includeTools" in done.stderr
        )


def test_a_command_that_fails_in_the_middle_of_a_run_says_which_run_goes_on(tmp_path: Path) -> None:
    gate = Gate("Done.")
    with private_home(tmp_path, gate) as home, open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "retinue", "run", "--json", "hello"]
        piped: Any = {"stdout": full, "stderr": subprocess.PIPE, "text": True}
        done = subprocess.run(
            command, cwd=home.project, env=home.env, timeout=SECONDS, check=False, **piped
        )
        assert done.returncode == 1 and "No space left" in done.stderr
        (run,) = home.runs()
        said = re.search(r"Run (\w+) may still be running", done.stderr)
        assert said is not None and said[1] == run["short"], done.stderr
        assert (
            f"retinue attach {run['short']}" in done.stderr
            and f"retinue cancel {run['short']}" in done.stderr
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
                done = home.run(*command)
                assert command == ("ps",) or (
                    done.returncode == 1 and "Run `retinue host stop`" in done.stderr
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
