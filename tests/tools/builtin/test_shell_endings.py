"""Hostile trees of processes, and four ways in which a command ends: nothing may be left of any of
them (A27)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from retinue.core.restarts import UNKNOWN
from retinue.sandbox.resource_limits import find_groups, is_bound
from retinue.tools.base import ToolResult
from tests.needs import needs
from tests.sandbox.bwrap_world import (
    SandboxedTools,
    processes_with,
    wait_until,
    with_sandboxed_tools,
)

pytestmark = needs("bwrap")

ROOT = Path(__file__).resolve().parents[3]
DAEMON = """
import os, signal, sys, time
for n in range(1, 65):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.chdir("/"); os.closerange(0, 4096)
time.sleep(600)
"""
# Each has the token in its command line. `ready` says that all of them are there.
TREES = {
    "setsid": "setsid sleep 600 TOKEN & setsid -f sleep 600 TOKEN",
    "nohup": "nohup sleep 600 TOKEN > /dev/null 2>&1 & nohup bash -c 'sleep 600; : TOKEN' &",
    "disown": "sleep 600 TOKEN & disown -a; (sleep 600 TOKEN &)",
    "deaf": "bash -c 'trap \"\" TERM INT HUP QUIT; while :; do sleep 1; done' TOKEN &",
    "daemon": f"{sys.executable} daemon.py TOKEN; {sys.executable} daemon.py TOKEN &",
    "nested": "setsid bash -c 'setsid bash -c \"setsid sleep 600; : TOKEN\" & sleep 600; : TOKEN' "
    "&",
    "clean": "env -i setsid bash -c 'sleep 600; : TOKEN' & env -i /usr/bin/setsid -f sleep 600 "
    "TOKEN",
}
# Nothing can be started beside it, so it comes last.
IS_LIMITED = is_bound() or find_groups().pids is not None
BOMB = "bomb() { bomb TOKEN | bomb TOKEN & }; bomb 2>/dev/null &" if IS_LIMITED else ":"
"""Only where something limits the number of processes: not for root without a control group."""
EVERYTHING = "\n".join(TREES.values())
FOR_EVER = "read x < never"


def token() -> str:
    return str(uuid.uuid4().int)[:18]


def script(tree: str, name: str, then: str) -> str:
    return f"exec 2>/dev/null\n{tree}\nsleep 0.3\n{BOMB}\n: > ready\n{then}".replace("TOKEN", name)


def prepare(folder: Path) -> SandboxedTools:
    tools = SandboxedTools(folder)
    (tools.workspace / "daemon.py").write_text(DAEMON)
    os.mkfifo(tools.workspace / "never")
    return tools


async def ready(tools: SandboxedTools) -> None:
    assert await asyncio.to_thread(wait_until, (tools.workspace / "ready").exists)


TABLE = [*TREES.items(), ("everything", EVERYTHING)]


@pytest.mark.parametrize(("name", "tree"), TABLE, ids=[name for name, _ in TABLE])
def test_nothing_is_left_when_the_command_is_done(name: str, tree: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    mark = token()
    answer = with_sandboxed_tools(
        tmp_path, lambda tools: tools.sh(script(tree, mark, "echo bye"), timeout_seconds=40)
    )
    assert "bye" in answer.text
    assert processes_with(mark) == []


def test_nothing_is_left_after_the_time_limit(tmp_path: Path) -> None:
    prepare(tmp_path)
    mark = token()

    async def act(tools: SandboxedTools) -> ToolResult:
        return await tools.sh(script(EVERYTHING, mark, FOR_EVER), timeout_seconds=2.5)

    assert "it took longer than 2.5 s" in with_sandboxed_tools(tmp_path, act).text
    assert processes_with(mark) == []


def test_nothing_is_left_after_a_cancel(tmp_path: Path) -> None:
    prepare(tmp_path)
    mark = token()

    async def act(tools: SandboxedTools) -> int:
        task = asyncio.ensure_future(
            tools.sh(script(EVERYTHING, mark, FOR_EVER), timeout_seconds=60)
        )
        await ready(tools)
        n = len(processes_with(mark))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert processes_with(mark) == []
        return n

    assert with_sandboxed_tools(tmp_path, act) > 10, "they were there"


def test_cancelling_again_and_again_changes_nothing(tmp_path: Path) -> None:
    prepare(tmp_path)
    mark = token()

    async def act(tools: SandboxedTools) -> None:
        task = asyncio.ensure_future(
            tools.sh(script(EVERYTHING, mark, FOR_EVER), timeout_seconds=60)
        )
        await ready(tools)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        await tools.processes.close()
        assert processes_with(mark) == []

    with_sandboxed_tools(tmp_path, act)


@pytest.mark.parametrize("background", [False, True])
def test_nothing_is_left_when_the_runtime_is_killed(tmp_path: Path, background: bool) -> None:
    tools = prepare(tmp_path)
    mark = token()
    argv = [sys.executable, "-m", "tests.tools.builtin.shell_victim", str(tmp_path)]
    argv += [
        script(EVERYTHING, mark, f"echo said; {FOR_EVER}"),
        *(["background"] if background else []),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with subprocess.Popen(argv, cwd=ROOT, env=environment) as victim:
        try:
            assert wait_until((tools.workspace / "ready").exists)
            assert len(processes_with(mark)) > 10
        finally:
            victim.kill()
    assert wait_until(lambda: processes_with(mark) == [])

    async def restart(tools: SandboxedTools) -> tuple[ToolResult, ToolResult]:
        again = tools.caller("victim", again=True)
        answer = await tools.shell.run(again, {"command": "touch twice", "background": background})
        page = await tools.output.run(tools.caller(), {"id": tools.processes.record("victim").id})
        assert isinstance(answer, ToolResult) and isinstance(page, ToolResult)
        await tools.sh("true")  # and the next command sweeps what the dead one left
        return answer, page

    answer, page = with_sandboxed_tools(tmp_path, restart)
    assert answer.error
    assert ("ended with the runtime" if background else UNKNOWN) in answer.text
    assert "The command ended with the runtime" in page.text
    assert sorted(p.name for p in tools.workspace.iterdir()) == ["daemon.py", "never", "ready"], (
        "no placeholder, no second run"
    )


def test_a_runtime_killed_at_any_moment_of_a_start_leaves_nothing(tmp_path: Path) -> None:
    """Before, while and after the sandbox is set up."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    marks = []
    for i in range(5):
        mark = token()
        marks.append(mark)
        folder = tmp_path / str(i)
        folder.mkdir()
        command = f"sleep 600 {mark}"
        argv = [sys.executable, "-m", "tests.tools.builtin.shell_victim", str(folder), command]
        with subprocess.Popen(argv, cwd=ROOT, env=environment) as victim:
            wait_until(lambda f=folder: any(f.glob("state/shell/*/start.json")))  # type: ignore[misc]
            wait_until(lambda: False, 0.007 * i)
            victim.kill()
    assert wait_until(lambda: not any(processes_with(mark) for mark in marks))
