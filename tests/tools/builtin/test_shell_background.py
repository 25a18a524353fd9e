"""Commands behind the conversation: they are polled, stopped, and end with their run."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from retinue.tools.base import ToolResult
from tests.needs import needs
from tests.sandbox.bwrap_world import SandboxedTools, processes_with, with_sandboxed_tools

pytestmark = needs("bwrap")


async def start(tools: SandboxedTools, command: str, **fields: Any) -> str:
    answer = await tools.sh(command, tools.caller(**fields), background=True)
    match = re.search(r"id '(\w+)'", answer.text)
    assert match is not None and not answer.error, answer.text
    return match[1]


async def look(tools: SandboxedTools, id: str, **args: Any) -> ToolResult:
    run = args.pop("run", "run-1")
    answer = await tools.output.run(tools.caller(run=run), {"id": id, **args})
    assert isinstance(answer, ToolResult)
    return answer


async def stop(tools: SandboxedTools, id: str, **fields: Any) -> ToolResult:
    answer = await tools.stop.run(tools.caller(**fields), {"id": id})
    assert isinstance(answer, ToolResult)
    return answer


def test_it_answers_at_once_and_can_be_polled_to_its_end(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> list[str]:
        id = await start(
            tools, "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; exit 3"
        )
        first = await look(tools, id, wait_seconds=20)
        (tools.workspace / "go").touch()
        second = await look(tools, id, wait_seconds=20, offset=4)
        last = await look(tools, id, wait_seconds=20, offset=8)
        return [first.text, second.text, last.text]

    first, second, last = with_sandboxed_tools(tmp_path, act)
    assert first == "running; 4 bytes so far.\none\n\n[bytes 0 to 4 of 4; this is all so far]"
    assert "two\n\n[bytes 4 to 8 of 8" in second
    assert last.startswith("exit code 3 after")


def test_it_can_be_stopped_and_its_output_stays(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> tuple[ToolResult, ToolResult, str]:
        id = await start(tools, "echo begun; setsid sleep 600 & sleep 600")
        await look(tools, id, wait_seconds=20)
        stopped = await stop(tools, id)
        assert processes_with(id) == []
        return stopped, await stop(tools, id), (await look(tools, id)).text

    stopped, again, later = with_sandboxed_tools(tmp_path, act)
    assert stopped.text.startswith("stopped after") and "begun" in stopped.text
    assert again == stopped, "stopping what has ended tells the same"
    assert later.startswith("stopped after")


def test_it_ends_with_its_run_and_not_with_another(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> None:
        mine, other = await start(tools, "sleep 600"), await start(tools, "sleep 600", run="run-2")
        await tools.processes.run_over("run-1")
        assert processes_with(mine) == []
        assert processes_with(other) != []
        assert (await look(tools, mine)).text.startswith("stopped")
        await tools.processes.close()
        assert processes_with(other) == []

    with_sandboxed_tools(tmp_path, act)


def test_the_foreground_of_a_run_ends_with_it_too(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> ToolResult:
        task = asyncio.ensure_future(tools.sh("sleep 600"))
        while not tools.processes._live:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await tools.processes.run_over("run-1")
        return await task

    assert with_sandboxed_tools(tmp_path, act).text.startswith("stopped after")


@pytest.mark.parametrize("id", ["", "nothing", "../../etc", "a/b", "0" * 16, "%s"])
def test_an_unknown_id_is_told(tmp_path: Path, id: str) -> None:
    async def act(tools: SandboxedTools) -> tuple[ToolResult, ToolResult]:
        return await look(tools, id), await stop(tools, id)

    for answer in with_sandboxed_tools(tmp_path, act):
        assert answer.error and "no shell command with id" in answer.text


def test_another_runs_process_can_be_neither_read_nor_stopped(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> None:
        id = await start(tools, "echo secret; sleep 600")
        assert (await look(tools, id, run="run-2")).error
        assert (await stop(tools, id, run="run-2")).error
        assert processes_with(id) != []
        await tools.processes.run_over("run-1")
        assert (await look(tools, id, run="run-2")).error

    with_sandboxed_tools(tmp_path, act)


def test_too_many_in_the_background_are_refused(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> ToolResult:
        for _ in range(2):
            await start(tools, "sleep 600")
        await start(tools, "sleep 600", run="run-2")
        return await tools.sh("sleep 600", background=True)

    answer = with_sandboxed_tools(tmp_path, act, max_background=2)
    assert answer.error and "Stop one with shell_stop first" in answer.text


def test_its_time_has_an_end(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> ToolResult:
        return await look(tools, await start(tools, "sleep 600"), wait_seconds=30)

    assert with_sandboxed_tools(tmp_path, act, background_seconds=0.5).text.startswith(
        "killed after"
    )
