"""The sandbox with bubblewrap. `find_sandbox` tries it once; nothing runs without it instead."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace

from retinue.errors import Refused, SandboxMissing
from retinue.sandbox import protected_paths as protected
from retinue.sandbox import seccomp
from retinue.sandbox import trusted_programs as programs
from retinue.sandbox.base import Command, CommandLimits, Guarantee, Sink
from retinue.sandbox.bwrap_probe import CLOSE, INSTALL, ISOLATE, probe_bwrap
from retinue.sandbox.kept_aside import KeptAside
from retinue.sandbox.mount_check import inspect
from retinue.sandbox.mount_watch import MountWatch
from retinue.sandbox.mounts import Mounts, command_mounts, etc_files, own_python, roots, system
from retinue.sandbox.private_paths import NOTHING, Private
from retinue.sandbox.process import ProcessGuard, ProcessTree
from retinue.sandbox.readonly_paths import ReadonlyPaths, beneath
from retinue.sandbox.resource_limits import find_groups, is_bound, process_rlimit


class Bwrap:
    """`private`: paths that no command sees. `aside`: where things that a command puts at protected
    names are kept. `readable`: read by all, with the system's programs; by default this Python."""

    name = "bubblewrap"

    def __init__(
        self,
        program: str,
        *,
        by_fd: bool,
        private: Private = NOTHING,
        aside: str = "",
        readable: Iterable[str] | None = None,
    ) -> None:
        self.program, self._by_fd = program, by_fd
        self._private, self._aside = private, aside
        self._readable = own_python() if readable is None else tuple(readable)
        self._filter = seccomp.program()
        self._etc = etc_files()

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        groups = find_groups()
        if groups.pids:
            processes = Guarantee("a limit on all processes, by control group")
        elif is_bound():
            processes = Guarantee("a limit on processes, by RLIMIT_NPROC")
        else:
            text = "no limit on processes: running as root without a control group"
            processes = Guarantee(text, is_weak=True)
        return (
            Guarantee("processes end with the command and with this process"),
            processes,
            Guarantee("a limit on memory, by control group")
            if groups.memory
            else Guarantee("a limit on the memory of each process only", is_weak=True),
            Guarantee("a system call filter")
            if self._filter
            else Guarantee("no system call filter for this architecture", is_weak=True),
        )

    async def start(self, command: Command, sink: Sink) -> ProcessTree:
        command = replace(command, tag=command.tag or uuid.uuid4().hex)
        write, guarded = self._writable(command)
        with ExitStack() as undo:
            layout = Mounts(self._by_fd)
            undo.callback(layout.close)
            readonly_sets = []
            for root in guarded:
                readonly_sets.append(self._readonly(root, command))
                undo.callback(readonly_sets[-1].release, looks=False)
            group = find_groups().make(command.limits)
            undo.callback(group.remove)
            status, writer = os.pipe()
            undo.callback(os.close, status)
            # Open for reading too: had it no reader when this process dies, bwrap would die of it
            # at a bad moment.
            one_way, writer = writer, os.open(f"/proc/self/fd/{writer}", os.O_RDWR | os.O_CLOEXEC)
            os.close(one_way)
            waits, gate = os.pipe()
            undo.callback(os.close, gate)
            layout.fds += (writer, waits)
            argv = self._argv(
                command,
                layout,
                readonly_sets,
                ("--json-status-fd", str(writer), "--block-fd", str(waits)),
            )
            watching = MountWatch.of(layout.mounts)
            undo.callback(watching.close)
            guard = ProcessGuard(
                inspect=lambda pid: inspect(pid, layout.mounts, command.opened),
                compare=lambda: any(
                    [watching.compare(), *(readonly.remove_new() for readonly in readonly_sets)]
                ),
                events_fd=watching.fd,
                read_events=watching.read_events,
                release=lambda: _release(watching, readonly_sets),
                missing=tuple(path for readonly in readonly_sets for path in readonly.missing())
                if self._aside
                else (),
                aside=f"{self._aside}/{_name(command.tag)}" if self._aside else "",
            )
            tree = ProcessTree(
                sink,
                command.limits,
                command.tag,
                status=status,
                gate=gate,
                group=group,
                disks=write,
                guard=guard,
            )
            undo.pop_all()  # from here on the tree undoes it
            try:
                return await tree.launch(argv, {}, layout.fds)
            finally:
                layout.close()

    def _readonly(self, root: str, command: Command) -> ReadonlyPaths:
        """The guard of a writable directory. (Its descriptor is duplicated; the command's own stays
        with its owner.)"""
        store, aside = (
            os.path.realpath(self._private.store or "/"),
            KeptAside(self._aside, _name(command.tag)),
        )
        directory = command.opened.get(root)
        fd = (
            os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            if directory is None
            else os.dup(directory)
        )
        try:
            others = [
                os.path.realpath(path)
                for path in (*command.write, *command.read)
                if os.path.isabs(path)
            ]
            return ReadonlyPaths.of(
                root, fd, aside, store if beneath(store, (root,)) else "", others
            )
        finally:
            os.close(fd)

    def _writable(self, command: Command) -> tuple[list[str], list[str]]:
        """The directories to mount, and all in which something is protected: one may lie in
        another."""
        write = roots(command.write, write=True)
        if not os.access(self.program, os.X_OK):
            raise SandboxMissing(f"{self.program} no longer exists", INSTALL)
        if beneath(os.path.realpath(self.program), write):
            raise SandboxMissing(
                f"{self.program} is in a directory that the command can write, so it is not trusted"
            )
        for path in {os.path.realpath(p) for p in (*command.write, *command.read, command.cwd)}:
            self._private.refuse(path)
        self._private.hold(map(os.path.realpath, (*command.write, *command.read, command.cwd)))
        for path in write:
            if why := protected.workplace(path):
                raise Refused(
                    "protected", f"{path} cannot be made writable: {why}. Nothing was run."
                )
        requests = dict.fromkeys((*write, *(os.path.realpath(path) for path in command.write)))
        homes = (home for home in protected.home_directories() if beneath(home, write))
        return write, [path for path in dict.fromkeys((*requests, *homes)) if os.path.isdir(path)]

    def _argv(
        self,
        command: Command,
        layout: Mounts,
        readonly_sets: list[ReadonlyPaths],
        pipes: tuple[str, ...],
    ) -> list[str]:
        """Options go through a descriptor: a command line can be read by every user of the machine.
        (The tag is put before them when it is started.)"""
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
        options += command_mounts(layout, full, readonly_sets, self._private)
        options += (*CLOSE, "--chdir", command.cwd)
        packed = layout.data(b"".join(os.fsencode(option) + b"\0" for option in options))
        return [self.program, "--args", packed, "--", *self._inner(command.argv, command.limits)]

    def _inner(self, argv: tuple[str, ...], limits: CommandLimits) -> tuple[str, ...]:
        if find_groups().pids is not None or not is_bound():
            return argv
        return ("/bin/sh", "-c", f'{process_rlimit(limits)}; exec "$@"', "sh", *argv)


def find_sandbox(
    *,
    private: Private = NOTHING,
    aside: str = "",
    readable: Iterable[str] | None = None,
    path: str | None = None,
) -> Bwrap:
    """The sandbox of this machine, or `SandboxMissing` with the reason and what to do. Tried once
    for each program. With `path`, the calling code vouches for those directories; of PATH only what
    no command can change is run."""
    if path is None:
        program, refused = programs.find("bwrap")
    else:
        folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]
        program, refused = (
            shutil.which("bwrap", path=os.pathsep.join(folders) or os.devnull) or "",
            "",
        )
    if not program:
        problem = "bubblewrap (bwrap) is not installed or not on PATH"
        raise SandboxMissing(problem, " ".join(filter(None, (INSTALL, refused))))
    probe = probe_bwrap(program)
    if probe.problem:
        raise SandboxMissing(probe.problem, probe.fix)
    return Bwrap(program, by_fd=probe.by_fd, private=private, aside=aside, readable=readable)


def _release(watching: MountWatch, readonly_sets: list[ReadonlyPaths]) -> tuple[str, ...]:
    """When nothing of the command is left: undo what it may have done where a mount was lost, and
    tell everything."""
    watching.compare()
    watching.close()
    notes = [
        f"{path} was replaced by another process while the command ran, which removed its "
        "protection. The command was stopped. Run it again if needed"
        for path in sorted(watching.lost)
    ]
    for path in sorted(watching.written):
        notes += [note for readonly in readonly_sets for note in readonly.restore(path)]
    return (*notes, *(note for readonly in readonly_sets for note in readonly.release()))


def _name(tag: str) -> str:
    """What of a tag can be in the name of a file."""
    return re.sub(r"[^0-9A-Za-z]", "-", tag)[-40:]
