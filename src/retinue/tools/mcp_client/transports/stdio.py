"""A server as a process of its own: one message a line over its pipes, its last words kept, its end
certain."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from retinue.core.redaction import Redactor
from retinue.sandbox import trusted_programs as programs
from retinue.sandbox.child_process import end, ended, start
from retinue.sandbox.open_beneath import DIRECTORY, open_beneath, open_real
from retinue.sandbox.path_checks import strip
from retinue.tools.mcp_client.protocol import McpError, ServerLimits, decode, encode, guess_id
from retinue.tools.mcp_client.transports.base import Lost, Receive, Unreadable
from retinue.tools.mcp_client.transports.stdio_lines import PEEK, LineSplitter

SUPERVISOR = Path(__file__).with_name("supervisor.py")
CHUNK = 1 << 16
MAX_UNREAD = 4 << 20
FLOOD_SECONDS = 10.0


class StdioTransport:
    """Started by `open`. The server lives in a process group of its own, under `supervisor.py`,
    which ends it and its descendants on request, or when this process is gone for any reason. It
    starts in `cwd`; when that lies `within` the workspace, where commands of a run write, no link
    may lead out of there."""

    is_inline = False
    is_logging_in = False

    def __init__(
        self,
        command: str,
        args: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str,
        limits: ServerLimits,
        redactor: Redactor,
        within: str = "",
    ) -> None:
        self._command, self._args = command, tuple(args)
        self._env, self._cwd, self._within = dict(env), cwd, within
        self._limits = limits
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline = -1
        self._readers: list[asyncio.Task[None]] = []
        self._writing = asyncio.Lock()
        self._stderr, self._stream = bytearray(), redactor.byte_stream()
        self._receive: Receive = lambda _: False
        self._lost: Lost = lambda _: None

    async def open(self, receive: Receive, on_lost: Lost) -> None:
        self._receive, self._lost = receive, on_lost
        with self._directory() as where:
            await self._start(where)

    async def _start(self, where: str) -> None:
        program = self._program(where)
        if not programs.python():
            raise McpError("start", "no Python interpreter was found to supervise the server")
        theirs, ours = os.pipe()
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await start(
                programs.python(), "-I", "-S", str(SUPERVISOR), str(theirs), program, *self._args,
                stdin=pipe, stdout=pipe, stderr=pipe, limit=CHUNK,
                env=self._env, cwd=where, pass_fds=(theirs,), start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            os.close(ours)
            raise McpError("start", f"the server cannot be started: {error}") from None
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._lifeline = ours
        self._readers = [asyncio.create_task(self._read()), asyncio.create_task(self._listen())]

    @contextlib.contextmanager
    def _directory(self) -> Iterator[str]:
        """Where it starts: a path to what was opened, which no one can put another directory in the
        place of."""
        rest = strip(self._cwd, self._within) if self._within else None
        try:
            if rest is None:
                fd = os.open(self._cwd or ".", DIRECTORY)
            else:
                top = open_real(self._within)
                try:
                    fd = open_beneath(top, rest or ".", DIRECTORY)
                finally:
                    os.close(top)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.ELOOP):
                raise McpError(
                    "start", f"its directory is outside the workspace (through a link): {self._cwd}"
                ) from None
            raise McpError("start", f"its directory does not exist: {self._cwd}") from None
        try:
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)

    def _program(self, where: str) -> str:
        if os.sep in self._command:
            path = os.path.join(where, self._command)
            program = (
                self._command if os.access(path, os.X_OK) and not os.path.isdir(path) else None
            )
        else:
            program = self._on_path()
        if program is None:
            text = f"program {self._command!r} not found on its PATH"
            text += (
                " outside of the workspace, where any command could have put it"
                if self._within
                else ""
            )
            raise McpError("start", f"{text}; install it, or give its path")
        return program

    def _on_path(self) -> str | None:
        """A name without a path means an installed program. PATH may lead into the workspace, where
        runs can write."""
        tops = tuple(
            f"{top.rstrip('/')}/"
            for top in (self._within, os.path.realpath(self._within))
            if self._within
        )
        for folder in self._env.get("PATH", os.defpath).split(os.pathsep):
            if os.path.isabs(folder) and not f"{folder}/".startswith(tops):
                program = shutil.which(self._command, path=folder)
                real = (os.path.realpath(folder), os.path.realpath(program)) if program else ()
                if program and not any(f"{path}/".startswith(tops) for path in real):
                    return program
        return None

    async def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        reason = "reading from the server failed"
        try:
            reason = await self._messages(process.stdout)
            self._release()
            if not reason and await ended(process, self._limits.close_seconds):
                code = process.returncode or 0
                how = (
                    f"by {signal.Signals(code - 128).name}"
                    if 128 < code < 160
                    else f"with code {code}"
                )
                reason = f"the server ended {how}"
        finally:
            self._lost(reason or "the server closed its output")

    async def _messages(self, stdout: asyncio.StreamReader) -> str:
        """Take messages until there are no more; a reason if they are no longer wanted."""
        lines, loop = LineSplitter(self._limits.message_bytes), asyncio.get_running_loop()
        n_bytes = n_messages = 0
        since = loop.time()
        while data := await stdout.read(CHUNK):
            if loop.time() - since > FLOOD_SECONDS:
                n_bytes, n_messages, since = 0, 0, loop.time()
            n_bytes += len(data)
            for line in lines.feed(data):
                n_messages += 1
                if self._take(line):
                    n_bytes = n_messages = 0
            if n_bytes > self._limits.flood_bytes or n_messages > self._limits.flood_messages:
                return (
                    "the server was stopped because it sent too much data that was not "
                    f"requested ({n_bytes} bytes)"
                )
            # A flood leaves something to read at every turn; the others get theirs.
            await asyncio.sleep(0)
        return ""

    def _take(self, line: bytes | Unreadable) -> bool:
        if isinstance(line, Unreadable):
            return self._receive(line)
        try:
            message = decode(line)
        except ValueError as error:
            message = Unreadable(f"invalid JSON: {error}", guess_id(line[:PEEK], line[-PEEK:]))
        return self._receive(message)

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(CHUNK):
            self._stderr += self._stream.feed(data)
            del self._stderr[: -self._limits.stderr_bytes]

    async def send(self, message: dict[str, Any], headers: Mapping[str, str]) -> None:
        async with self._writing:
            process = self._process
            if process is None or process.stdin is None or process.stdin.is_closing():
                raise McpError("lost", "the server's input is closed")
            if process.stdin.transport.get_write_buffer_size() > MAX_UNREAD:
                raise McpError("timeout", "the server does not read its input")
            try:
                process.stdin.write(encode(message) + b"\n")
                await process.stdin.drain()
            except (OSError, RuntimeError) as error:
                raise McpError("lost", f"cannot write to the server: {error}") from None

    async def close(self) -> None:
        """Close its input, then have it asked, then killed. Each wait is bounded."""
        process = self._process
        if process is None:
            return
        try:
            if process.stdin is not None:
                process.stdin.close()
            if self._lifeline >= 0 and process.returncode is None:
                await ended(process, self._limits.close_seconds)
        finally:
            self._release()
            try:
                await ended(process, 5.0)  # the supervisor gives the server a second after its TERM
            finally:
                for task in self._readers:
                    task.cancel()
                await asyncio.gather(*self._readers, return_exceptions=True)
                self._readers = []
                await end(process)
                self._process = None

    def _release(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def tail(self) -> str:
        return self._stderr.decode("utf-8", "replace").strip()

    def forget(self) -> None:
        pass
