"""What containment costs: the same command bare and in the sandbox, in turns. Prints one line of
JSON, in milliseconds.

python -m bench.sandbox [rounds]
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import Queued, Run
from retinue.sandbox.base import Command, Sandbox
from retinue.sandbox.bwrap import find_sandbox
from retinue.sandbox.unsandboxed import Unsandboxed
from retinue.tools.base import Context
from retinue.tools.builtin.run_processes import Processes
from retinue.tools.builtin.shell import ShellTool

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": os.path.expanduser("~")}


async def one(sandbox: Sandbox, folder: str) -> float:
    command = Command(argv=("/bin/sh", "-c", ":"), cwd=folder, write=(folder,), env=ENVIRONMENT)
    start = time.perf_counter()
    ended = await (await sandbox.start(command, lambda data: None)).wait(30)
    assert ended.code == 0, ended
    return (time.perf_counter() - start) * 1000


async def plain(folder: str) -> float:
    """What nobody can be faster than: the process alone."""
    start = time.perf_counter()
    await (await asyncio.create_subprocess_exec("/bin/sh", "-c", ":", cwd=folder)).wait()
    return (time.perf_counter() - start) * 1000


async def whole(tool: ShellTool, folder: str, i: int) -> float:
    """A call of the tool: record, sandbox, spool, answer."""
    spec = RunSpec(id="r", root="r", request=RunRequest(agent="a", task="t"), created_at=0)
    caller = Context(
        spec=spec,
        row=Run(id="r", state=Queued()),
        call_id="c",
        index=0,
        key=str(i),
        called_at=0,
        root=folder,
    )
    start = time.perf_counter()
    await tool.run(caller, {"command": ":"})
    return (time.perf_counter() - start) * 1000


async def main(rounds: int) -> None:
    times: dict[str, list[float]] = {"process": [], "bare": [], "sandboxed": [], "tool": []}
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ".git").mkdir()
        contained, bare = find_sandbox(), Unsandboxed(unsafe_no_sandbox=True)
        processes = Processes(Path(state))
        tool = ShellTool(processes)
        for i in range(rounds + 2):
            result = {
                "process": await plain(folder),
                "bare": await one(bare, folder),
                "sandboxed": await one(contained, folder),
                "tool": await whole(tool, folder, i),
            }
            for name, value in result.items() if i >= 2 else ():
                times[name].append(value)
        await processes.close()
    medians = {name: round(statistics.median(values), 2) for name, values in times.items()}
    least = {name: round(min(values), 2) for name, values in times.items()}
    overhead = round(medians["sandboxed"] - medians["process"], 2)
    line = {
        "bench": "sandbox",
        "rounds": rounds,
        "median_ms": medians,
        "min_ms": least,
        "overhead_ms": overhead,
    }
    print(
        json.dumps(
            {
                **line,
                "load": os.getloadavg()[0],
                "weak": [g.text for g in contained.guarantees if g.is_weak],
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 40))
