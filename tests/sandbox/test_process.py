"""What we started ends whole, also when it is ended as it begins."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from retinue.sandbox import git_folders
from retinue.sandbox.base import CommandLimits
from retinue.sandbox.child_process import end, start
from retinue.sandbox.process import ProcessTree
from tests.waiting import until_here


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_the_group_of_a_process_ends_with_it() -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", "sleep 1000 & echo $!; wait"),
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        inner = int(await process.stdout.readline())
        await end(process)
        for _ in range(12_000):
            if not is_alive(inner):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("what it had started lives on")

    asyncio.run(main())


HOLDS_ITS_PIPES = "sleep 1000 & echo $! > {}; wait"


@pytest.mark.parametrize("ticks", range(12))
def test_a_task_cancelled_while_a_process_starts_waits_for_none_inside_it(
    tmp_path: Path, ticks: int
) -> None:
    pid = tmp_path / "pid"

    async def main() -> None:
        pipe = subprocess.PIPE
        command = ("/bin/sh", "-c", HOLDS_ITS_PIPES.format(pid))
        starting = asyncio.ensure_future(
            start(*command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        )
        await _cancelled(starting, ticks)

    asyncio.run(main())
    until_here(lambda: not _lives(pid))
    assert not _lives(pid)


@pytest.mark.parametrize("ticks", range(12))
def test_a_task_cancelled_while_a_command_starts_waits_for_none_inside_it(
    tmp_path: Path, ticks: int
) -> None:
    pid = tmp_path / "pid"

    async def main() -> None:
        tree = ProcessTree(lambda data: None, CommandLimits(), "x" * 32)
        command = ("/bin/sh", "-c", HOLDS_ITS_PIPES.format(pid))
        starting = asyncio.ensure_future(tree.launch(command, {}, ()))
        if await _cancelled(starting, ticks):
            tree.stop()
            await tree.wait()

    asyncio.run(main())
    until_here(lambda: not _lives(pid))
    assert not _lives(pid)


def _lives(pid: Path) -> bool:
    """Whether the process whose number was written there lives; none was started without it."""
    return pid.exists() and is_alive(int(pid.read_text() or 0))


async def _cancelled(starting: asyncio.Future[Any], ticks: int) -> bool:
    """Whether it was done before it could be cancelled, at that turn of the loop; time enough for
    the process to start others passes first."""
    for _ in range(ticks):
        await asyncio.sleep(0)
    time.sleep(0.1)  # noqa: ASYNC251 - the loop must not turn meanwhile
    starting.cancel()
    tasks, _ = await asyncio.wait({starting}, timeout=60)
    assert tasks, "it still waits"
    if starting.cancelled():
        return False
    if isinstance(process := starting.result(), asyncio.subprocess.Process):
        await end(process)
    return True


def test_a_sandbox_that_a_killed_host_has_left_goes_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_folders, "PLACES", (str(tmp_path),))
    program = tmp_path / "bwrap"
    program.symlink_to("/bin/sh")
    rest, lock = git_folders.make()
    os.close(lock)
    mine, amount = git_folders.make()
    started = [
        subprocess.Popen([program, "-c", "read x", "--bind", folder, folder], stdin=subprocess.PIPE)
        for folder in (rest, mine)
    ]
    try:
        # A new program is known by its command line a moment after it has been started.
        lines = [Path(f"/proc/{process.pid}/cmdline") for process in started]
        until_here(lambda: all(b"--bind" in line.read_bytes() for line in lines))
        git_folders.sweep()
        assert started[0].wait(60) == -9 and not os.path.exists(rest)
        assert started[1].poll() is None and os.path.isdir(mine)
    finally:
        os.close(amount)
        for process in started:
            process.kill()
            process.communicate()
