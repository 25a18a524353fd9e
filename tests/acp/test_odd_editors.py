"""Editors that send what no editor should, close an end, or lose their host: the agent goes on, and
ends without a word when its editor leaves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acp.editor import Editor, new_session, opened
from tests.cli.private_home import Gate, PrivateHome, private_home
from tests.waiting import SECONDS, until

FIRST = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
ODD: list[Any] = [
    {"id": [1], "result": {}},
    {"id": {"a": 1}, "error": {"code": 1}},
    {"id": 1, "error": "text"},
    {"id": 1, "error": {"code": "x", "message": 7}},
    {"id": 99, "result": None},
    {"id": [1], "method": "session/list", "params": {}},
    {"id": True, "method": "session/list"},
    {"id": 5, "method": ["x"]},
    {"id": 6, "method": "session/prompt", "params": [1]},
    {"method": "session/cancel", "params": {"sessionId": "unknown"}},
    {"id": 7, "method": "session/new", "params": {"cwd": "/no\0where", "mcpServers": []}},
    [FIRST],
    "text",
]


def agent(home: PrivateHome) -> subprocess.Popen[str]:
    return home.start("acp", stdin=subprocess.PIPE)


def test_what_no_editor_sends_does_not_end_the_agent(tmp_path: Path) -> None:
    process = agent(PrivateHome(tmp_path))
    assert process.stdin is not None and process.stdout is not None
    for message in (FIRST, *({"jsonrpc": "2.0", **o} if isinstance(o, dict) else o for o in ODD)):
        process.stdin.write(json.dumps(message) + "\n")
    process.stdin.write("[" * 50_000 + "\n\x00\n")
    process.stdin.write(json.dumps({**FIRST, "id": "last"}) + "\n")
    process.stdin.flush()
    replies: list[dict[str, Any]] = []
    while not any(reply.get("id") == "last" for reply in replies):
        replies.append(json.loads(process.stdout.readline()))
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    refused = [r["error"]["code"] for r in replies if r["id"] is None]
    assert refused.count(-32600) == 8 and refused.count(-32700) == 2


@pytest.mark.parametrize("reads", [True, False])
def test_an_editor_that_leaves_ends_its_agent_without_a_word(tmp_path: Path, reads: bool) -> None:
    """What is written to an editor that does not read fills the pipe."""
    process = agent(PrivateHome(tmp_path))
    assert process.stdin is not None and process.stdout is not None
    assert process.stderr is not None
    for n in range(1 if reads else 1_000):
        unknown = {"jsonrpc": "2.0", "id": n, "method": "x" * 100}
        process.stdin.write(json.dumps(FIRST if reads else unknown) + "\n")
    process.stdin.close()
    try:
        assert process.wait(SECONDS) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_a_host_that_is_killed_in_a_prompt_is_started_again(tmp_path: Path) -> None:
    gate = Gate("The result.")

    async def main(home: PrivateHome) -> None:
        async with opened(home, Editor()) as editor:
            session = await new_session(home, editor)
            turn = asyncio.create_task(editor.prompt(session, "think"))
            await until(gate.reached.is_set)
            os.kill(await asyncio.to_thread(home.host_pid), signal.SIGKILL)
            gate.opened.set()
            assert (await turn).stop_reason == "end_turn"
            assert editor.text() == "The result."

    with private_home(tmp_path, gate) as home:
        asyncio.run(main(home))
        assert [run["state"] for run in home.runs()] == ["completed"]
