"""Commands in the real sandbox, for tests: a caller with its directory, and the tools that
execute."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import Queued, Run
from retinue.core.values import Permissions
from retinue.sandbox.base import Command, CommandExit, CommandLimits, Sandbox
from retinue.sandbox.bwrap import find_sandbox
from retinue.tools.base import Context, ToolResult
from retinue.tools.builtin.git import GitTool
from retinue.tools.builtin.run_processes import Processes
from retinue.tools.builtin.shell import ShellOutputTool, ShellStopTool, ShellTool
from tests.waiting import SECONDS

T = TypeVar("T")


class SandboxedTools:
    """A workspace and a runtime's state directory, beside each other."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.workspace, self.state = folder / "workspace", folder / "state"
        self.workspace.mkdir(exist_ok=True)
        self.processes = Processes(self.state, **options)
        self.shell = ShellTool(self.processes)
        self.output = ShellOutputTool(self.processes)
        self.stop = ShellStopTool(self.processes)
        self.git = GitTool(self.processes)

    def caller(self, key: str = "", **fields: Any) -> Context:
        run = fields.pop("run", "run-1")
        spec = RunSpec(id=run, root=run, request=RunRequest(agent="a", task="t"), created_at=0)
        name = {
            "root": str(self.workspace),
            "permissions": Permissions(),
            "called_at": int(time.time() * 1000),
            **fields,
        }
        key = key or uuid.uuid4().hex
        return Context(
            spec=spec, row=Run(id=run, state=Queued()), call_id="c", index=0, key=key, **name
        )

    async def sh(self, command: str, context: Context | None = None, **args: Any) -> ToolResult:
        answer = await self.shell.run(context or self.caller(), {"command": command, **args})
        assert isinstance(answer, ToolResult)
        return answer


def with_sandboxed_tools(
    folder: Path, act: Callable[[SandboxedTools], Awaitable[T]], **options: Any
) -> T:
    """Run something with a house, and close it behind."""

    async def go() -> T:
        tools = SandboxedTools(folder, **options)
        try:
            return await act(tools)
        finally:
            await tools.processes.close()

    return asyncio.run(go())


def run_in(
    workspace: Path,
    script: str,
    *,
    sandbox: Sandbox | None = None,
    seconds: float = 30,
    **fields: Any,
) -> tuple[CommandExit, str]:
    """One script in a sandbox of its own, with the workspace writable unless told otherwise."""
    output = bytearray()
    names: dict[str, Any] = {
        "cwd": str(workspace),
        "write": (str(workspace),),
        "env": {"PATH": "/usr/bin:/bin", "HOME": os.path.expanduser("~")},
        "tag": uuid.uuid4().hex,
        "limits": CommandLimits(),
        **fields,
    }

    async def go() -> CommandExit:
        command = Command(argv=("/bin/bash", "-c", script), **names)
        mine = sandbox or find_sandbox(aside=str(workspace.parent / "taken"))
        running = await mine.start(command, output.extend)
        return await running.wait(seconds)

    ended = asyncio.run(go())
    return ended, output.decode("utf-8", "replace")


def processes_with(token: str) -> list[int]:
    """Everything alive whose command line or environment has the token, this process excepted."""
    results = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            data = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            dead = (entry / "stat").read_bytes().rpartition(b") ")[2][:1] in b"ZX"
        except OSError:
            continue
        if token.encode() in data and not dead:
            results.append(int(entry.name))
    return results


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS) -> bool:
    """For what another process does: there is no event to wait for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
