"""The sandbox of this machine: bubblewrap. `find_sandbox` tries it once and says what is missing; nothing is ever run
bare in its place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache

from retinue.errors import SandboxMissing
from retinue.sandbox import seccomp
from retinue.sandbox.base import Command, Limits, Sink
from retinue.sandbox.layout import Layout, etc_files, given, own_python, roots, system
from retinue.sandbox.limits import find_groups, process_rlimit
from retinue.sandbox.running import Tree
from retinue.sandbox.shield import Shield, beneath

OLDEST = (0, 8, 0)
# Everything that is not about files. A user namespace even for root, so that capabilities mean nothing outside.
ISOLATE = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--disable-userns"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"),
)
# /proc read-only as a whole: root needs no capability to write most of /proc/sys, and bwrap does not cover that.
CLOSE = ("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/")
FIXES = {
    "missing": "bubblewrap (bwrap) is not installed or not on PATH. Install the package bubblewrap.",
    "old": "bubblewrap {version} is too old: 0.8 or newer is needed. Install a newer package bubblewrap.",
    "failed": (
        "bubblewrap is here but cannot make a sandbox ({detail}). Usually user namespaces are disabled: allow them "
        "(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, "
        "kernel.apparmor_restrict_unprivileged_userns=0); in a container, start it with a seccomp profile that permits "
        "them."
    ),
}


class Bwrap:
    """`hide` are directories that no command may see whatever it was given (the runtime's own); `readable` those that
    all may read, beside the system's programs: by default the installation of this Python."""

    name = "bubblewrap"

    def __init__(
        self, program: str, *, by_fd: bool, hide: Iterable[str] = (), readable: Iterable[str] | None = None
    ) -> None:
        self._program, self._by_fd = program, by_fd
        self._hide = tuple(hide)
        self._readable = own_python() if readable is None else tuple(readable)
        self._filter = seccomp.program()
        self._etc = etc_files()

    @property
    def promises(self) -> tuple[str, ...]:
        groups, is_root = find_groups(), os.getuid() == 0
        return (
            "processes end with the command and with this process",
            "a limit on all processes, by control group"
            if groups.pids
            else (
                "no limit on processes: root, and no control group"
                if is_root
                else "a limit on processes, by RLIMIT_NPROC"
            ),
            "a limit on memory, by control group" if groups.memory else "a limit on the memory of each process only",
            "a filter of system calls" if self._filter else "no filter of system calls: no table for this architecture",
        )

    async def start(self, command: Command, sink: Sink) -> Tree:
        command = replace(command, tag=command.tag or uuid.uuid4().hex)
        write, guarded = self._writable(command)
        with ExitStack() as undo:
            layout = Layout()
            undo.callback(layout.close)
            shields = []
            for root in guarded:
                shields.append(await Shield.raise_for(root))
                undo.callback(shields[-1].release)
            group = find_groups().make(command.limits)
            undo.callback(group.remove)
            status, told = os.pipe()
            undo.callback(os.close, status)
            # Open for reading too: had it no reader when this process dies, bwrap would die of it at a bad moment.
            one_way, told = told, os.open(f"/proc/self/fd/{told}", os.O_RDWR | os.O_CLOEXEC)
            os.close(one_way)
            waits, gate = os.pipe()
            undo.callback(os.close, gate)
            layout.fds += (told, waits)
            argv = self._argv(command, layout, shields, ("--json-status-fd", str(told), "--block-fd", str(waits)))
            tree = Tree(
                sink,
                command.limits,
                command.tag,
                status=status,
                gate=gate,
                group=group,
                disks=write,
                release=lambda: tuple(note for shield in shields for note in shield.release()),
            )
            undo.pop_all()  # from here on the tree undoes it
            try:
                return await tree.launch(argv, {}, layout.fds)
            finally:
                layout.close()

    def _writable(self, command: Command) -> tuple[list[str], list[str]]:
        """The directories to mount, and all in which something is protected: one may lie in another."""
        write = roots(command.write, write=True)
        if not os.access(self._program, os.X_OK):
            raise SandboxMissing(f"{self._program} is gone. Install the package bubblewrap. Nothing was run.")
        if beneath(os.path.realpath(self._program), write):
            raise SandboxMissing(f"{self._program} lies where the command may write, so it is not trusted.")
        asked = dict.fromkeys((*write, *(os.path.realpath(path) for path in command.write)))
        return write, [path for path in asked if os.path.isdir(path)]

    def _argv(self, command: Command, layout: Layout, shields: list[Shield], pipes: tuple[str, ...]) -> list[str]:
        """Options go through a descriptor: a command line can be read by every user of the machine. (The tag is put
        before them when it is started.)"""
        options = [*ISOLATE, *pipes]
        options += () if command.network else ("--unshare-net",)
        if self._filter:
            options += ("--seccomp", layout.data(self._filter))
        for name, value in command.env.items():
            options += ("--setenv", name, value)
        options += system(layout, etc_files() if command.network else self._etc)
        options += ("--dev", "/dev", "--proc", "/proc")
        read = (*command.read, *self._readable)
        full = replace(command, read=read)
        mounts = [pair for shield in shields for pair in shield.args]
        options += given(layout, full, mounts, self._hide, by_fd=self._by_fd)
        options += (*CLOSE, "--chdir", command.cwd)
        packed = layout.data(b"".join(os.fsencode(option) + b"\0" for option in options))
        return [self._program, "--args", packed, "--", *self._inner(command.argv, command.limits)]

    def _inner(self, argv: tuple[str, ...], limits: Limits) -> tuple[str, ...]:
        if find_groups().pids is not None or os.getuid() == 0:
            return argv
        return ("/bin/sh", "-c", f'{process_rlimit(limits)}; exec "$@"', "sh", *argv)


def find_sandbox(*, hide: Iterable[str] = (), readable: Iterable[str] | None = None, path: str | None = None) -> Bwrap:
    """The sandbox of this machine, or `SandboxMissing` with the reason and what to do. Tried once for each `path`."""
    folders = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    # A relative entry could be a directory of the project.
    found = shutil.which("bwrap", path=os.pathsep.join(f for f in folders if os.path.isabs(f)) or os.devnull)
    if found is None:
        raise SandboxMissing(FIXES["missing"] + " Nothing was run.")
    trouble, by_fd = _probe(found)
    if trouble:
        raise SandboxMissing(f"{trouble} Nothing was run.")
    return Bwrap(found, by_fd=by_fd, hide=hide, readable=readable)


@lru_cache(maxsize=8)
def _probe(program: str) -> tuple[str, bool]:
    """Why it cannot be used, or ""; and whether it takes directories by descriptor."""
    try:
        version = _output(program, "--version").strip()
        numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:3])
        if numbers < OLDEST:
            return FIXES["old"].format(version=version.removeprefix("bubblewrap ") or "of unknown version"), False
        isolate = [*ISOLATE, "--unshare-net", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *CLOSE[:4]]
        _output(program, *isolate, "--", "/bin/sh", "-c", ":")
        return "", "--bind-fd" in _output(program, "--help")
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "output", None) or b""
        words = said.decode("utf-8", "replace").split() or str(error).split()
        return FIXES["failed"].format(detail=" ".join(words)[:300]), False


def _output(*argv: str) -> str:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={}, timeout=20, check=True
    )
    return done.stdout.decode("utf-8", "replace")
