"""A small program between this process and a server: when this process is gone, or asks for it, it
ends the server and everything that the server has started. Run as a script: `supervisor.py FD
COMMAND ARGS...`; FD is the reading end of a pipe whose other end only we hold.

A death signal set in the server itself would not do: it is bound to the thread that forked, would
have to be set between fork and exec in a process with threads, and does not reach the server's own
children."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

GRACE = 1.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
IS_LINUX = sys.platform == "linux"


def prctl(option: int, value: int) -> None:
    if IS_LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants() -> list[int]:
    """All processes below this one. A process that loses its parent becomes our child, so none gets
    away."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if IS_LINUX else ():
        if name.isdigit():
            with (
                contextlib.suppress(OSError, ValueError, IndexError),
                open(f"/proc/{name}/stat", "rb") as file,
            ):
                parents[int(name)] = int(file.read().rsplit(b")", 1)[1].split()[1])
    pids = {os.getpid()}
    while True:
        more = {p for p, parent in parents.items() if parent in pids} - pids
        if not more:
            return sorted(pids - {os.getpid()})
        pids |= more


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end(child: subprocess.Popen[bytes]) -> None:
    """The group is asked, then killed; then whatever else is left."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGTERM)
    until = time.monotonic() + GRACE
    while child.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    sweep(child)


def sweep(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    for _ in range(200):
        pids = descendants()
        if not pids and child.poll() is not None:
            return
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        child.poll()
        reap()
        time.sleep(0.005)


def main() -> int:
    fd, command = int(sys.argv[1]), sys.argv[2:]
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)  # ignoring it would be inherited
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    os.set_inheritable(fd, False)
    # One thread only, so code between fork and exec is safe here.
    try:
        child = subprocess.Popen(
            command,
            start_new_session=True,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            restore_signals=True,
        )
    except OSError as error:
        os.write(2, f"{command[0]} cannot be run: {error.strerror}\n".encode())
        return 126
    for n in (0, 1, 2):
        os.close(n)
    is_over = False
    while child.poll() is None and not is_over:
        ready, _, _ = select.select([fd, woken], [], [])
        if woken in ready:
            is_over = signal.SIGTERM in os.read(woken, 512)
        is_over = is_over or fd in ready
    if is_over:
        end(child)
    else:
        sweep(child)
    code = child.returncode
    code = code or 0
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main())
