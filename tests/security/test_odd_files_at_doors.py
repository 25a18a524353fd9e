"""Pipes and files without an end at every name that a project's files have: whoever comes through
the doors for other programs waits for none of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.acp.editor import Editor, opened
from tests.cli.private_home import private_home
from tests.cli.test_odd_files import NAMES, endless, fifo, plant
from tests.mcp.raw_client import RawClient, envelope
from tests.security.served import ADMIN, serving

MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
RPC = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": MESSAGE}}
CHAT = {"model": "main", "messages": [{"role": "user", "content": "go"}]}


@pytest.mark.parametrize("kind", [fifo, endless])
def test_no_door_waits_for_an_odd_file_of_a_project(tmp_path: Path, kind: Any) -> None:
    with private_home(tmp_path) as home:
        settings = home.project / ".retinue" / "config.toml"
        settings.parent.mkdir()
        settings.write_text("")
        home.ok("trust", "--yes")
        (home.project / ".git").rmdir()
        plant(home.project, kind, NAMES)
        with serving(home, tmp_path / "tokens") as served:
            for name in ("definitions", "health", "models", "tools", "overview"):
                assert served.ask(ADMIN, "GET", f"/api/v1/{name}")[0] == 200
            assert served.text(served.start(ADMIN)) == "Done."
            status, answer = served.ask(ADMIN, "POST", "/a2a?A2A-Version=1.0", RPC)
            assert status == 200 and "TASK_STATE_COMPLETED" in str(answer), answer
            assert served.ask(ADMIN, "POST", "/v1/chat/completions", CHAT)[0] == 200
        with RawClient(home) as client:
            work = {"name": "delegate", "arguments": {"tasks": ["go"]}, "_meta": envelope()}
            assert "Done." in str(client.ask("tools/call", work))

        async def main() -> str:
            editor = Editor()
            async with opened(home, editor):
                session = await editor.agent.new_session(cwd=str(home.project), mcp_servers=[])
                return str((await editor.prompt(session.session_id, "go")).stop_reason)

        assert asyncio.run(main()) == "end_turn"
        home.ok("host", "stop")
