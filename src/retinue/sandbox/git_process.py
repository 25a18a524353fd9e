"""Runs git: the system's program, a clean environment, a deadline, and limits on resources and
output. Where there is a sandbox it sees the directories that it was given and nothing else of the
disk: a link that leads elsewhere, put there at whatever moment, leads to nothing."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import resource
import shutil
from collections.abc import Iterable, Iterator

from retinue.errors import RetinueError, SandboxMissing
from retinue.sandbox.child_process import end, start
from retinue.sandbox.readonly_paths import beneath

PLACES = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
SECONDS = 30.0
LONG_SECONDS = 120.0
"""For what reads or writes the files of a whole tree."""
MEMORY = 4 << 30
MOST_OUTPUT = 256 << 20
MOST_COMPLAINT = 64 << 10
ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}


@functools.cache
def program() -> str:
    """The machine's git, never one of a project."""
    path = shutil.which("git", path=PLACES)
    if path is None:
        raise RetinueError("git is not installed; nothing was run.")
    return path


def base() -> dict[str, str]:
    """The settings of the user are not read either: a filter that is set up there for all
    repositories would be controlled by this one."""
    return {"PATH": PLACES, "HOME": home(), **ENVIRONMENT}


def home() -> str:
    return os.path.expanduser("~")


async def run(
    args: tuple[str, ...],
    environ: dict[str, str],
    *,
    cwd: str = "/",
    fed: bytes = b"",
    seconds: float = SECONDS,
    sees: tuple[str, ...] = (),
    most: int = 0,
    good: tuple[int, ...] = (0,),
) -> bytes:
    """What git answers, or `RetinueError` with what it says. With `sees` it may use these
    directories alone; `most` bytes of the answer are enough, and it is stopped when it has more.
    `good` are the exit codes of an answer."""
    command = [program(), "--no-pager", *args]
    if sees and (bwrap := await asyncio.to_thread(_bwrap)):
        command = list(_confined(bwrap, command, cwd, sees))
    pipe = asyncio.subprocess.PIPE
    process = await start(
        *command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, cwd=cwd, start_new_session=True
    )
    try:
        with contextlib.suppress(OSError, AttributeError):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
        out, complaint = await asyncio.wait_for(_talk(process, fed, most or MOST_OUTPUT), seconds)
    except TimeoutError:
        raise RetinueError(f"git {args[0]} took longer than {seconds:g} s") from None
    finally:
        await end(process)
    if len(out) > (most or MOST_OUTPUT):
        if most:
            return out[:most]
        raise RetinueError(f"git {args[0]} answered with more than {MOST_OUTPUT >> 20} MiB")
    if process.returncode not in good:
        problem = complaint.decode("utf-8", "replace").strip()[:500] or process.returncode
        raise RetinueError(f"git {args[0]}: {problem}")
    return out


async def _talk(process: asyncio.subprocess.Process, fed: bytes, most: int) -> tuple[bytes, bytes]:
    """Write its input and read its output to the end, or until there is more than `most`."""
    assert process.stdout is not None and process.stderr is not None
    feeding = asyncio.ensure_future(_feed(process, fed))
    complaining = asyncio.ensure_future(_read_output(process.stderr, MOST_COMPLAINT, goes_on=True))
    try:
        out = await _read_output(process.stdout, most)
        if len(out) > most:
            return out, b""
        complaint = await complaining
        await process.wait()
        return out, complaint
    finally:
        feeding.cancel()
        complaining.cancel()
        await asyncio.gather(feeding, complaining, return_exceptions=True)


async def _feed(process: asyncio.subprocess.Process, fed: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.write(fed)
        await process.stdin.drain()
    process.stdin.close()


async def _read_output(stream: asyncio.StreamReader, most: int, *, goes_on: bool = False) -> bytes:
    data = bytearray()
    while piece := await stream.read(1 << 20):
        data += piece
        if len(data) > most:
            if not goes_on:
                break
            del data[most:]
    return bytes(data)


def _bwrap() -> str:
    """The program that makes sandboxes here, or "": commands have none either then, and could read
    all of it. The same as for commands, so none that a command could have put on PATH."""
    from retinue.sandbox.bwrap import find_sandbox  # here and below: few programs make copies

    try:
        return find_sandbox().program
    except SandboxMissing:
        return ""


def _confined(bwrap: str, command: list[str], cwd: str, sees: Iterable[str]) -> Iterator[str]:
    from retinue.sandbox.bwrap_probe import ISOLATE
    from retinue.sandbox.mounts import SYSTEM

    real = sorted({os.path.realpath(path) for path in sees}, key=len)
    if beneath(os.path.realpath(bwrap), real):
        raise RetinueError(
            f"{bwrap} lies in the repository, so it is not trusted; nothing was done."
        )
    yield from (bwrap, *ISOLATE, "--unshare-net")
    for path in SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    yield from ("--dev", "/dev")
    for path in real:
        yield from ("--bind", path, path)
    limited = f'ulimit -d {MEMORY >> 10}; exec "$@"'
    yield from (
        "--chdir",
        cwd,
        "--",
        "/bin/sh",
        "-c",
        limited,
        "sh",
        os.path.realpath(command[0]),
        *command[1:],
    )
