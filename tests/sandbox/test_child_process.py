"""Processes that are ended: nobody waits for them without an end, and nothing of them is left to be
collected later."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from retinue.sandbox import child_process
from retinue.sandbox import process as process_module
from retinue.sandbox.base import CommandLimits
from retinue.sandbox.process import ProcessTree
from tests.needs import needs
from tests.tools.builtin.file_tool_support import Desk, tree
from tests.waiting import SECONDS, until

FLOOD = "import os\nwhile True: os.write(1, b'x' * 65536); os.write(2, b'y' * 65536)"
STUBBORN = (
    "import signal, os, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.write(1, "
    "b'.')\ntime.sleep(600)"
)


async def _started(code: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=pipe, stdout=pipe, stderr=pipe
    )


@pytest.mark.parametrize("code", [FLOOD, STUBBORN])
def test_what_floods_full_and_unread_pipes_is_ended(code: str) -> None:
    async def main() -> int:
        process = await _started(code)
        assert process.stdout is not None and process.stdin is not None
        process.stdin.write(b"z" * (1 << 20))  # nobody reads that
        await process.stdout.read(1)
        await asyncio.sleep(0.2)  # its pipes fill up, and the reader is paused
        await asyncio.wait_for(child_process.end(process), SECONDS)
        return process.pid

    pid = asyncio.run(main())
    gc.collect()
    assert not os.path.exists(f"/proc/{pid}")


def test_a_pipe_that_another_process_holds_is_not_waited_for() -> None:
    code = "import os, time\nif pid := os.fork(): print(pid, flush=True)\nelse: time.sleep(600)"

    async def main() -> None:
        process = await _started(code)
        assert process.stdout is not None
        holder = int(await process.stdout.readline())
        try:
            assert await child_process.ended(process, SECONDS)
            async with asyncio.timeout(SECONDS):
                await child_process.end(process)
        finally:
            os.kill(holder, signal.SIGKILL)

    asyncio.run(main())


def test_whoever_is_cancelled_while_a_child_processs_leaves_nothing_behind() -> None:
    async def main() -> None:
        process = await _started(STUBBORN)
        ends = asyncio.create_task(child_process.end(process))
        await asyncio.sleep(0)
        ends.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ends
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        assert process.returncode is not None

    asyncio.run(main())
    gc.collect()


def test_a_command_that_cannot_be_killed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one is that hangs in the kernel."""
    monkeypatch.setattr(process_module, "GONE_SECONDS", 0.2)

    async def main() -> str:
        command = ProcessTree(lambda data: None, CommandLimits(free_disk=0), "tag-of-a-test")
        await command.launch(["/bin/sleep", "60"], {}, ())
        transport = command._transport
        assert transport is not None
        pid = transport.get_pid()
        with monkeypatch.context() as patched:
            patched.setattr(os, "killpg", lambda *texts: None)
            patched.setattr(transport, "kill", lambda: None)
            patched.setattr(process_module, "kill_tagged", lambda tag: [])
            command.stop("stopped")
            why = (await asyncio.wait_for(command.wait(), SECONDS)).why
        os.killpg(pid, 9)
        await until(lambda: transport.get_returncode() is not None)
        await asyncio.sleep(0)
        return why

    assert asyncio.run(main()) == "stopped"


@needs("rg")
@pytest.mark.parametrize("name", [".gitignore", ".rgignore", "deep/er/.gitignore"])
@pytest.mark.parametrize("kind", ["fifo", "zero", "sparse"])
def test_an_ignore_file_that_is_none_does_not_hold_up_a_search(
    tmp_path: Path, name: str, kind: str
) -> None:
    desk = Desk(tmp_path)
    tree(desk.root, {"deep/er/f": "needle\n"})
    path = Path(desk.root, name)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    assert desk.ok("search", pattern="needle").startswith("deep/er/f:1:needle")
