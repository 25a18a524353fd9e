"""Out through other processes, their rights and their terminals."""

import contextlib
import ctypes
import fcntl
import glob
import os
import resource
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from .base import attempt, check, facts, libc, read, shell, write


@attempt
def see_the_runtime() -> Any:
    return [p for p in glob.glob("/proc/[0-9]*") if facts["token"] in read(f"{p}/cmdline")]


@attempt
def read_every_environment() -> Any:
    return [p for p in glob.glob("/proc/[0-9]*/environ") if facts["canary"] in read(p)]


@attempt
def ask_for_all_environments() -> Any:
    process = subprocess.run(
        ["/bin/sh", "-c", "ps eaux 2>/dev/null; env; cat /proc/1/environ"], capture_output=True
    )
    return facts["canary"].encode() in process.stdout


@attempt
def kill_outside() -> Any:
    os.kill(facts["victim"], signal.SIGKILL)
    return True


@attempt
def trace_outside() -> Any:
    return check(libc.ptrace(16, facts["victim"], None, None))


@attempt
def raise_limits() -> Any:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    return True


@attempt
def become_more_important() -> Any:
    os.nice(-5)
    return True


@attempt
def become_another_user() -> Any:
    os.setuid(12345)
    return True


@attempt
def give_a_file_away() -> Any:
    write("given")
    os.chown("given", 12345, 12345)
    return True


@attempt
def leave_a_program_that_runs_as_its_owner() -> Any:
    """For everybody on the machine, and for ever."""
    for name in ("plain", "held", "at"):
        write(name)
    new = os.O_CREAT | os.O_WRONLY
    how = (ctypes.c_uint64 * 3)(new, 0o4755, 0)
    ways: list[Callable[[], Any]] = [
        lambda: os.chmod("plain", 0o4755),
        lambda: os.fchmod(os.open("held", os.O_RDWR), 0o6755),
        lambda: check(libc.fchmodat(-100, b"at", 0o4755, 0)),
        lambda: check(libc.syscall(452, -100, b"at", 0o4755, 0)),
        lambda: os.open("opened", new, 0o4755),
        lambda: os.link(
            f"/proc/self/fd/{os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755)}", "linked"
        ),
        lambda: check(libc.creat(b"created", 0o4755)),
        lambda: os.mknod("made", 0o104755),
        lambda: check(libc.syscall(437, -100, b"opened2", ctypes.byref(how), 24)),
    ]
    for way in ways:
        with contextlib.suppress(OSError):
            way()
    return [name for name in os.listdir(".") if os.lstat(name).st_mode & 0o4000]


@attempt
def run_a_setuid_program() -> Any:
    return shell("sudo -n true || su -c true nobody < /dev/null || mount -t tmpfs none /tmp")


@attempt
def type_into_the_terminal() -> Any:
    results = []
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):
            fcntl.ioctl(fd, 0x5412, b"x")
            results.append(fd)
    with contextlib.suppress(OSError), open("/dev/tty") as tty:
        fcntl.ioctl(tty, 0x5412, b"x")
        results.append(3)
    own, _ = os.openpty()
    with contextlib.suppress(OSError):
        fcntl.ioctl(own, 0x5412, b"x")
        results.append(4)
    return results
