"""The official client, whose server or host is killed in the middle of an agent's work: it has the
answer, once, in both eras."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult

from tests.cli.private_home import Gate, PrivateHome, private_home
from tests.mcp.official_client import ERAS, TaskParams, TaskReply, TaskRequest, Tasks, official
from tests.waiting import until


def servers() -> list[int]:
    """The thin processes that clients of this process have started."""
    results = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid() and words[3:5] == [b"mcp", b"serve"]:
            results.append(int(folder.name))
    return results


def answers(result: Any) -> list[tuple[str, str]]:
    assert isinstance(result, CallToolResult) and result.structured_content is not None
    return [(one["state"], one["text"]) for one in result.structured_content["agents"]]


@pytest.mark.parametrize("mode", ERAS)
def test_the_host_is_killed_and_the_call_has_its_answer(tmp_path: Path, mode: str) -> None:
    gate = Gate("The answer.")

    async def main(home: PrivateHome) -> None:
        options = {"extensions": [Tasks()]} if mode != "legacy" else {}
        async with official(home, mode, **options) as client:
            call = asyncio.ensure_future(client.call_tool("delegate", {"tasks": ["think"]}))
            await until(gate.reached.is_set)
            os.kill(await asyncio.to_thread(home.host_pid), signal.SIGKILL)
            gate.opened.set()
            assert answers(await call) == [("completed", "The answer.")]
            listed = await client.call_tool("agents", {})
            assert len(listed.structured_content["agents"]) == 1

    with private_home(tmp_path, gate) as home:
        asyncio.run(main(home))


@pytest.mark.parametrize("mode", ERAS)
def test_the_server_is_killed_and_the_client_that_comes_back_has_the_answer(
    tmp_path: Path, mode: str
) -> None:
    gate, tasks = Gate("The answer."), Tasks()
    options = {"extensions": [tasks]} if mode != "legacy" else {}

    async def begin(home: PrivateHome) -> None:
        async with official(home, mode, **options) as client:
            call = asyncio.ensure_future(client.call_tool("delegate", {"tasks": ["think"]}))
            await until(gate.reached.is_set)
            if mode != "legacy":
                await until(lambda: tasks.seen)
            (server,) = servers()
            os.kill(server, signal.SIGKILL)
            with pytest.raises(Exception, match=r"(?i)clos|connection|ended|resource"):
                await call

    async def come_back(home: PrivateHome) -> None:
        async with official(home, mode, **options) as client:
            gate.opened.set()
            if mode == "legacy":
                (agent,) = (await client.call_tool("agents", {})).structured_content["agents"]
                result = await client.call_tool("result", {"ids": [agent["id"]]})
            else:
                result = await polled(client, tasks.created[0].task_id)
            assert answers(result) == [("completed", "The answer.")]
            listed = await client.call_tool("agents", {})
            assert len(listed.structured_content["agents"]) == 1

    with private_home(tmp_path, gate) as home:
        asyncio.run(begin(home))
        asyncio.run(come_back(home))
        assert len(gate.heard) == 1


async def polled(client: Client, task: str) -> CallToolResult:
    """What a task of an earlier connection came to."""
    while True:
        request = TaskRequest(method="tasks/get", params=TaskParams(task_id=task))
        reply: TaskReply = await client.session.send_request(request, TaskReply)
        if reply.status == "completed":
            return CallToolResult.model_validate(reply.result)
        assert reply.status == "working"
        await asyncio.sleep(0.1)
