"""A running process tree: reads its output as it comes, ends all of it, and waits until no process
is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retinue.errors import RetinueError
from retinue.sandbox.base import CommandExit, CommandLimits, Sink, Why
from retinue.sandbox.child_process import finish_first
from retinue.sandbox.resource_limits import ControlGroup, rlimits
from retinue.sandbox.tagged_processes import TAG, kill_tagged

# The process that we start. It starts the command, and a watcher that blocks on a pipe whose other
# end only the runtime holds: when that is closed, however the runtime ended, the watcher kills what
# has the tag on its command line, until a look finds nothing. bwrap's own death signals are not
# enough: the first process inside asks for its own late, and if the outer one has died by then, it
# is never killed. $A and $B are the tag, in two parts and from the environment, so that neither
# this process nor grep has it on its own command line. Then it takes away what has appeared at
# protected names that were $MISSING, one on each line, and notes beside it where it was:
# `kept_aside.unreported` finds that. It goes into the directory first and asks the kernel where it
# is: the command may have put a link on the way. (It is ended with a signal that it ignores once it
# has something to do.)
SUPERVISE = r"""exec 3<&0; {limits}
sweep() {{ n=0; while [ $n -lt 50 ]; do n=$((n + 1)); found=
for at in $(grep -lsaz "^[$A]$B\$" /proc/[0-9]*/cmdline)
do at=${{at#/proc/}}; kill -9 ${{at%/*}} && found=1; done
[ "$found" ] || return; sleep 0.02; done; }}
take() {{ n=0; IFS=$(printf '\n.'); IFS=${{IFS%.}}; set -f
for at in $missing; do it=./${{at##*/}}; at=${{at%/*}}
cd -P -- "$at/" && [ "$(pwd -P)" = "$at" ] || continue; [ -e "$it" ] || [ -L "$it" ] || continue
while n=$((n + 1)); ! mkdir -m 700 "$aside-$n"; do [ $n -lt 999 ] || return; done
printf %s "$at/${{it#./}}" > "$aside-$n/from" && mv -- "$it" "$aside-$n/it"; done; }}
missing=$MISSING aside=$ASIDE; unset MISSING ASIDE
program=$1; shift; "$program" {options} "$@" 3<&- < /dev/null & command=$!
(read x <&3; trap '' TERM; kill -9 $command; sweep; take; kill -9 -$$) > /dev/null 2>&1 & watcher=$!
exec > /dev/null 2>&1; wait $command; code=$?; [ $code -gt 128 ] && sweep
kill $watcher; wait $watcher; exit $code"""
BWRAP_OPTIONS = f'--clearenv --setenv {TAG} "$A$B"'
GONE_SECONDS = 5.0
LOOK_SECONDS = 0.25
# Less than this is never the reason why a disk is full.
MUCH_DISK = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGuard:
    """What surrounds a command. `inspect` gets the first process of the sandbox and checks the
    sandbox before the command begins, and raises if it is not as it should be; `compare` says now
    and then whether the command must be stopped, in a thread, and `read_events` does immediately
    when `events_fd` can be read (-1: no notifications); `release` undoes what was set up, and
    returns notes for the user. `missing` are names at which nothing may appear: what does when this
    process has died goes to `aside`."""

    inspect: Callable[[int], None] = lambda pid: None
    compare: Callable[[], bool] = lambda: False
    events_fd: int = -1
    read_events: Callable[[], bool] = lambda: False
    release: Callable[[], tuple[str, ...]] = tuple
    missing: Sequence[str] = ()
    aside: str = ""


class ProcessTree(asyncio.SubprocessProtocol):
    """One start. `status` is the pipe on which bwrap tells the first process inside and the exit
    code (None: there is no bwrap, and the exit code is the process's own). The command waits inside
    until `gate` is written to, which is when it is in its group, and the sandbox was looked at."""

    def __init__(
        self,
        sink: Sink,
        limits: CommandLimits,
        tag: str,
        *,
        status: int | None = None,
        gate: int | None = None,
        group: ControlGroup | None = None,
        disks: Sequence[str] = (),
        guard: ProcessGuard | None = None,
    ) -> None:
        self._sink = sink
        self._limits = limits
        self._status = status
        self._group = group or ControlGroup(())
        self._disks = {path: _free(path) for path in disks} if limits.free_disk else {}
        self._guard, self._gate, self._tag = guard, gate, tag
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exited, self._closed = asyncio.Event(), asyncio.Event()
        self._why: Why = ""
        self._n_output = 0
        self._told = b""
        self._code: int | None = None
        self._inside: int | None = None  # a pidfd of the first process in the sandbox
        self._started = time.monotonic()
        self._finishing: asyncio.Task[CommandExit] | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._is_over = False
        self._looking = threading.Lock()
        self._lifeline: int | None = None

    async def launch(
        self, argv: Sequence[str], env: dict[str, str], pass_fds: Sequence[int], cwd: str = "/"
    ) -> ProcessTree:
        """`env` is the environment of what is started here, which is not yet the command. Returns
        when that has begun, or could not; raises, when it may not begin, what `inspect` has
        raised."""
        loop = asyncio.get_running_loop()
        alive, self._lifeline = os.pipe()
        options = "" if self._status is None else BWRAP_OPTIONS
        script = SUPERVISE.format(limits=rlimits(self._limits), options=options)
        try:
            starting = loop.subprocess_exec(
                lambda: self,
                *("/bin/sh", "-c", script, "sh", *argv),
                stdin=alive,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={
                    "PATH": "/usr/bin:/bin",
                    "A": self._tag[0],
                    "B": self._tag[1:],
                    **self._watched(),
                    **env,
                },
                pass_fds=tuple(pass_fds),
                cwd=cwd,
                process_group=0,
            )
            await finish_first(starting)
            if self._status is not None:
                os.set_blocking(self._status, False)
                loop.add_reader(self._status, self._read_status)
                if self._guard is not None and self._guard.events_fd >= 0:
                    loop.add_reader(self._guard.events_fd, self._read_events)
                await self._begun
        except BaseException:
            self._why = "lost"
            if self._transport is None:
                self._clean_up()
            else:
                self.stop("cancelled")
                await asyncio.shield(self._finish_once())
            raise
        finally:
            os.close(alive)
        return self

    def _watched(self) -> dict[str, str]:
        if self._guard is None or not self._guard.aside:
            return {}
        os.makedirs(os.path.dirname(self._guard.aside), 0o700, exist_ok=True)
        # A path with a line end in it would be taken for two.
        return {
            "MISSING": "\n".join(p for p in self._guard.missing if "\n" not in p),
            "ASIDE": self._guard.aside,
        }

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._n_output += len(data)
        if self._limits.output and self._n_output > self._limits.output:
            self.stop("output")
        self._sink(data)

    def process_exited(self) -> None:
        self._exited.set()
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()

    def _read_status(self) -> None:
        """Lines of JSON from bwrap; the writing end is closed in everything that runs inside."""
        assert self._status is not None
        try:
            data = os.read(self._status, 65536)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(self._status)
        *lines, self._told = (self._told + data).split(b"\n")
        for line in lines:
            status = json.loads(line)
            if "child-pid" in status and self._inside is None:
                with contextlib.suppress(ProcessLookupError):
                    self._inside = os.pidfd_open(status["child-pid"])
                    preparing = asyncio.get_running_loop().run_in_executor(
                        None, self._prepare, status["child-pid"]
                    )
                    preparing.add_done_callback(self._prepared)
            self._code = status.get("exit-code", self._code)

    def _read_events(self) -> None:
        if self._guard is not None and self._guard.read_events():
            self.stop()

    def _compare(self) -> bool:
        """In a thread: a directory may have very many names."""
        with self._looking:
            return not self._is_over and self._guard is not None and self._guard.compare()

    def _prepare(self, pid: int) -> None:
        """Both take their time; meanwhile bwrap mounts. In a thread."""
        self._group.join(pid)
        if self._guard is not None:
            self._guard.inspect(pid)

    def _prepared(self, preparing: asyncio.Future[None]) -> None:
        error = None if preparing.cancelled() else preparing.exception()
        if isinstance(error, RetinueError):
            self._begin(error)
        elif preparing.cancelled() or error is not None:
            self.stop("lost")
        elif self._gate is not None:
            with contextlib.suppress(OSError):  # no one is there to read it
                os.write(self._gate, b"!")
            self._begin()

    def _begin(self, error: RetinueError | None = None) -> None:
        if not self._begun.done():
            self._begun.set_result(None) if error is None else self._begun.set_exception(error)

    def stop(self, why: Why = "stopped") -> None:
        if self._is_over or self._transport is None:
            return
        if not self._exited.is_set():
            self._why = self._why or why
        if self._inside is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._inside, signal.SIGKILL)
        if self._transport.get_returncode() is None:
            # The group too: before it has a session of its own, the first process inside is in it.
            # (To kill it by the transport once more would take its exit status from the code that
            # waits for it.)
            try:
                os.killpg(self._transport.get_pid(), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                with contextlib.suppress(ProcessLookupError):
                    self._transport.kill()
        self._group.kill()
        # What cannot be killed (it hangs in the kernel) is not waited for either.
        asyncio.get_running_loop().call_later(GONE_SECONDS, self._exited.set)

    async def wait(self, seconds: float | None = None) -> CommandExit:
        try:
            async with asyncio.timeout(seconds):
                while not self._exited.is_set():
                    with contextlib.suppress(TimeoutError):
                        is_watched = self._disks or self._guard is not None
                        await asyncio.wait_for(
                            self._exited.wait(), LOOK_SECONDS if is_watched else None
                        )
                    if self._guard is not None and await asyncio.to_thread(self._compare):
                        self.stop()
                    if any(
                        _is_filling(path, before, self._limits.free_disk)
                        for path, before in self._disks.items()
                    ):
                        self.stop("disk")
        except TimeoutError:
            self.stop("timeout")
        except asyncio.CancelledError:
            self.stop("cancelled")
            await asyncio.shield(self._finish_once())
            raise
        return await asyncio.shield(self._finish_once())

    def _finish_once(self) -> asyncio.Task[CommandExit]:
        """In a task of its own, so that a second cancellation does not cut it short."""
        if self._finishing is None:
            self._finishing = asyncio.get_running_loop().create_task(self._finish())
        return self._finishing

    async def _finish(self) -> CommandExit:
        notes: tuple[str, ...] = ()
        try:
            await _within(GONE_SECONDS, self._exited.wait())
            self._drain_status()
            if self._inside is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._inside, signal.SIGKILL)
                # It is readable when the first process is dead, and that waits for all the others
                # inside.
                await _readable(self._inside, GONE_SECONDS)
            if self._ending() or self._status is None:
                await self._swept()
            await _within(GONE_SECONDS, self._closed.wait())
        finally:
            seconds = time.monotonic() - self._started
            notes = self._clean_up()
        return CommandExit(code=self._exit_code(), why=self._ending(), seconds=seconds, notes=notes)

    async def _swept(self) -> None:
        """A killed process is seen as a zombie or not at all, but one that was forking has left
        another."""
        for _ in range(100):
            if not kill_tagged(self._tag):
                return
            await asyncio.sleep(0.02)

    def _drain_status(self) -> None:
        if self._status is not None:
            asyncio.get_running_loop().remove_reader(self._status)
            self._read_status()

    def _exit_code(self) -> int | None:
        if self._status is not None or self._transport is None:
            return None if self._why else self._code
        code = self._transport.get_returncode()
        return None if self._why or code is None or code < 0 else code

    def _ending(self) -> Why:
        return self._why or ("lost" if self._exit_code() is None else "")

    def _clean_up(self) -> tuple[str, ...]:
        with self._looking:  # a look that was left alone may still continue
            if self._is_over:
                return ()
            self._is_over = True
        notes = self._group.notes()
        self._group.kill()
        if not self._group.remove():
            asyncio.get_running_loop().call_later(1.0, self._group.remove)
        if self._transport is not None:
            self._transport.close()
        if self._guard is not None and self._guard.events_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._guard.events_fd)
        for fd in (self._status, self._inside, self._gate, self._lifeline):
            if fd is not None:
                with contextlib.suppress(RuntimeError):
                    asyncio.get_running_loop().remove_reader(fd)
                os.close(fd)
        self._inside = self._gate = self._lifeline = None
        return (*notes, *(self._guard.release() if self._guard is not None else ()))


def _free(path: str) -> int:
    try:
        info = os.statvfs(path)
    except OSError:
        return 0
    return info.f_bavail * info.f_frsize


def _is_filling(path: str, before: int, reserve: int) -> bool:
    now = _free(path)
    return now < reserve and before - now > MUCH_DISK


async def _within(seconds: float, awaitable: Any) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(awaitable, seconds)


async def _readable(fd: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await _within(seconds, ready.wait())
    finally:
        loop.remove_reader(fd)
