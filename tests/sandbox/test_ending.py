"""What we started ends whole, also when it is ended as it begins."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from retinue.sandbox import git_folders
from retinue.sandbox.process_end import end
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


def test_a_sandbox_that_a_killed_host_has_left_goes_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_folders, "PLACES", (str(tmp_path),))
    program = tmp_path / "bwrap"
    program.symlink_to("/bin/sh")
    left, lock = git_folders.make()
    os.close(lock)
    mine, held = git_folders.make()
    started = [
        subprocess.Popen([program, "-c", "read x", "--bind", folder, folder], stdin=subprocess.PIPE)
        for folder in (left, mine)
    ]
    try:
        # A new program is known by its command line a moment after it has been started.
        lines = [Path(f"/proc/{process.pid}/cmdline") for process in started]
        until_here(lambda: all(b"--bind" in line.read_bytes() for line in lines))
        git_folders.sweep()
        assert started[0].wait(60) == -9 and not os.path.exists(left)
        assert started[1].poll() is None and os.path.isdir(mine)
    finally:
        os.close(held)
        for process in started:
            process.kill()
            process.communicate()
