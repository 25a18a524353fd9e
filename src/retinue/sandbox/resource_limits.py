"""Limits on a command's resources: control groups if this process can create them, resource limits
everywhere.

`RLIMIT_NPROC` does not bind the machine's root: for root the process limit depends on the pids
group."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from retinue.sandbox.base import CommandLimits

PREFIX = "retinue-"


def rlimits(limits: CommandLimits) -> str:
    """Shell words that set the resource limits of what follows them. (-f and -c count 512 bytes, -d
    counts 1024.)

    RLIMIT_DATA, not RLIMIT_AS: runtimes such as V8 and Go reserve more addresses than any sensible
    limit."""
    words = ["ulimit -c 0"]
    for flag, value, unit in (
        ("f", limits.file_size, 512),
        ("d", limits.memory, 1024),
        ("t", limits.cpu_seconds, 1),
        ("n", limits.open_files, 1),
    ):
        if value:
            # A limit that is already lower stays as it is.
            words.append(f"ulimit -{flag} {max(1, value // unit)} 2>/dev/null || :")
    return "; ".join(words)


def process_rlimit(limits: CommandLimits) -> str:
    """The same for processes. It must be set inside the user namespace, where the count starts at
    zero."""
    n = limits.processes
    return f"ulimit -u {n} 2>/dev/null || ulimit -p {n} 2>/dev/null || :" if n else ":"


@lru_cache(maxsize=1)
def is_bound(uid_map: str = "/proc/self/uid_map") -> bool:
    """Whether RLIMIT_NPROC binds this process. It does not bind the machine's root, whatever a user
    namespace calls it; who is root in a namespace only (a container without privileges) is
    bound."""
    uid = os.getuid()
    with contextlib.suppress(OSError, ValueError):
        for line in Path(uid_map).read_text().splitlines():
            inside, outside, n = map(int, line.split())
            if inside <= uid < inside + n:
                return outside + uid - inside != 0
    return uid != 0


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The control groups of one command."""

    folders: tuple[Path, ...]

    def join(self, pid: int) -> None:
        """Put a process into it, which can take the kernel some milliseconds."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def notes(self) -> tuple[str, ...]:
        sentences = []
        for folder in self.folders:
            if _count(folder / "pids.events", "max"):
                sentences.append("the process limit was reached")
            if _count(folder / "memory.events", "oom_kill") or _count(
                folder / "memory.oom_control", "oom_kill"
            ):
                sentences.append("the memory limit was reached, and a process was killed")
        return tuple(sentences)

    def members(self) -> set[int]:
        pids: set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(OSError):
                pids |= {int(line) for line in (folder / "cgroup.procs").read_text().split()}
        return pids

    def kill(self) -> None:
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> bool:
        """False while something is still in it."""
        for folder in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """Where groups can be made: below the group of this process, never beside it, so that its own
    limits still hold."""

    pids: Path | None
    memory: Path | None

    def make(self, limits: CommandLimits) -> ControlGroup:
        name = f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:12]}"
        folders: dict[Path, None] = {}
        try:
            if self.pids is not None and limits.processes:
                folder = self.pids / name
                folder.mkdir(exist_ok=True)
                folders[folder] = None
                # One more for the first process inside, which is bwrap's.
                (folder / "pids.max").write_text(str(limits.processes + 1))
            if self.memory is not None and limits.memory:
                folder = self.memory / name
                folder.mkdir(exist_ok=True)
                folders[folder] = None
                _limit_memory(folder, limits.memory)
        except OSError:
            # It could be done when it was probed: someone has changed the rules, or there are too
            # many groups.
            ControlGroup(tuple(folders)).remove()
            return ControlGroup(())
        return ControlGroup(tuple(folders))

    def sweep(self) -> None:
        """Groups whose maker is dead: what is in them is killed, and they go."""
        for parent in {self.pids, self.memory} - {None}:
            assert parent is not None
            for folder in parent.glob(f"{PREFIX}*-*"):
                maker = folder.name.removeprefix(PREFIX).partition("-")[0]
                if maker.isdigit() and not Path("/proc", maker).exists():
                    group = ControlGroup((folder,))
                    group.kill()
                    group.remove()


@lru_cache(maxsize=1)
def find_groups() -> ControlGroups:
    """Which control groups this process may make; tried once, by making one."""
    mine = _own_groups()
    return ControlGroups(
        pids=_usable(mine.get("pids"), "pids.max"), memory=_usable(mine.get("memory"), "memory")
    )


def _own_groups(
    mounts: str = "/proc/self/mountinfo", membership: str = "/proc/self/cgroup"
) -> dict[str, Path]:
    """The folder of this process's group for each controller, in either version of the
    interface."""
    try:
        groups = Path(membership).read_text().splitlines()
        lines = Path(mounts).read_text().splitlines()
    except OSError:
        return {}
    paths = {
        line.split(":", 2)[1]: line.split(":", 2)[2] for line in groups if line.count(":") >= 2
    }
    folders: dict[str, Path] = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        kind, _, options = (*after.split(" ", 2), "", "")[:3]
        root, point = before.split(" ")[3:5]
        if kind == "cgroup2" and "" in paths:
            for controller in ("pids", "memory"):
                folders.setdefault(controller, _below(point, root, paths[""]))
        elif kind == "cgroup":
            for names, path in paths.items():
                for controller in ("pids", "memory"):
                    if controller in names.split(",") and controller in options.rpartition(" ")[
                        2
                    ].split(","):
                        folders[controller] = _below(point, root, path)
    return folders


def _below(point: str, root: str, path: str) -> Path:
    inside = os.path.relpath(path, root) if path.startswith(root) else path.lstrip("/")
    return Path(point, inside)


def _usable(parent: Path | None, needed: str) -> Path | None:
    if parent is None or not os.access(parent, os.W_OK):
        return None
    probe = parent / f"{PREFIX}{os.getpid()}-probe"
    files = ("memory.max", "memory.limit_in_bytes") if needed == "memory" else (needed,)
    try:
        probe.mkdir()
        try:
            if not any((probe / name).exists() for name in files):
                return None
            # A version 2 group that must not hold processes of its own can be made, but not joined.
            return parent if os.access(probe / "cgroup.procs", os.W_OK) else None
        finally:
            probe.rmdir()
    except OSError:
        return None


def _limit_memory(folder: Path, n_bytes: int) -> None:
    if (folder / "memory.max").exists():
        (folder / "memory.max").write_text(str(n_bytes))
        with contextlib.suppress(OSError):
            (folder / "memory.swap.max").write_text("0")
    else:
        (folder / "memory.limit_in_bytes").write_text(str(n_bytes))
        with contextlib.suppress(OSError):
            (folder / "memory.memsw.limit_in_bytes").write_text(str(n_bytes))


def _count(path: Path, key: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    return 0
