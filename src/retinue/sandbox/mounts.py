"""What a sandboxed command sees of the file system: system programs, its directories, an empty
private home and temporary directory, and nothing else. The root is built up, not cut down: what no
one thought of is absent."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from retinue.errors import Refused
from retinue.sandbox.base import Command
from retinue.sandbox.private_paths import Private
from retinue.sandbox.readonly_paths import OPEN, ReadonlyPaths, beneath, worktree_of

SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
)
# Copied into the sandbox, not mounted: a mount costs a third of a millisecond. The rest of /etc can
# hold secrets, which root would read.
ETC_FILES = (
    "passwd group nsswitch.conf hosts host.conf resolv.conf gai.conf ld.so.cache services "
    "protocols mime.types os-release debian_version timezone localtime ssl/openssl.cnf inputrc"
)
ETC_FOLDERS = ("ssl/certs", "pki/tls/certs", "pki/ca-trust", "alternatives")
# Never given to be written, whole: they belong to the machine or to everyone on it.
SHARED = frozenset(
    {
        "/",
        *SYSTEM,
        "/nix",
        "/gnu",
        "/etc",
        "/var",
        "/run",
        "/boot",
        "/dev",
        "/proc",
        "/sys",
        "/tmp",
        "/var/tmp",
    }
    | {"/home", "/mnt", "/media", "/srv", "/snap"}
)


@dataclass(frozen=True, slots=True)
class Mount:
    """Something of the disk in the sandbox: at `path` is what has the number `same`, read-only
    unless `writable`. A mask hides what has it."""

    path: str
    same: tuple[int, int]
    writable: bool = False
    is_mask: bool = False


@dataclass
class Mounts:
    """What makes the file system: the mounts, and the descriptors that the arguments for bwrap
    name. `by_fd`: whether it takes what is to be mounted by descriptor; before it looks at a path,
    someone could have put a link there."""

    by_fd: bool = False
    fds: list[int] = field(default_factory=list)
    mounts: list[Mount] = field(default_factory=list)

    def data(self, content: bytes) -> str:
        """A descriptor from which `content` can be read once."""
        fd = os.memfd_create("retinue", os.MFD_CLOEXEC)
        self.fds.append(fd)
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        return str(fd)

    def bind(self, path: str, fd: int | None, writable: bool = False) -> list[str]:
        """Mount a file or directory at its own path: what was opened before, or what is there
        now."""
        try:
            mine = os.open(path, OPEN) if fd is None else os.dup(fd)
        except OSError:
            raise replaced(path) from None
        self.fds.append(mine)
        if os.readlink(f"/proc/self/fd/{mine}") != path:
            raise replaced(path)
        info = os.fstat(mine)
        self.mounts.append(Mount(path, (info.st_dev, info.st_ino), writable))
        if not self.by_fd:
            return ["--bind" if writable else "--ro-bind", path, path]
        return ["--bind-fd" if writable else "--ro-bind-fd", str(mine), path]

    def mask(self, path: str) -> list[str]:
        try:
            info = os.lstat(path)
        except OSError:
            raise replaced(path) from None
        self.mounts.append(Mount(path, (info.st_dev, info.st_ino), is_mask=True))
        if stat.S_ISDIR(info.st_mode):
            return ["--perms", "0555", "--tmpfs", path]
        return ["--ro-bind", "/dev/null", path]

    def close(self) -> None:
        while self.fds:
            os.close(self.fds.pop())


def replaced(path: str) -> Refused:
    return Refused(
        "sandbox",
        f"{path} was replaced while the command was prepared. Nothing was run. Try again "
        "when nothing else changes it.",
    )


def own_python() -> tuple[str, ...]:
    """Where this Python is installed, when that is not among the system's programs: projects run
    it."""
    home = os.path.realpath(os.path.expanduser("~"))
    folders = {os.path.realpath(p) for p in (sys.base_prefix, sys.prefix)}
    return tuple(
        sorted(
            p
            for p in folders
            if not beneath(p, SYSTEM) and p not in SHARED and not beneath(home, (p,))
        )
    )


def etc_files() -> dict[str, bytes]:
    contents = {}
    for name in ETC_FILES.split():
        try:
            with open(f"/etc/{name}", "rb") as file:
                contents[f"/etc/{name}"] = file.read(4 << 20)
        except OSError:
            continue
    return contents


def roots(paths: Iterable[str], *, write: bool) -> list[str]:
    """Resolved, without those that lie in another one. What is not there is omitted: nothing can be
    seen of it."""
    real = sorted({os.path.realpath(p) for p in paths if os.path.isabs(p)}, key=len)
    tops: list[str] = []
    for path in real:
        if write and (path in SHARED or path.startswith(("/proc/", "/sys/", "/dev/"))):
            raise Refused(
                "sandbox",
                f"{path} is a system directory and cannot be made writable. Nothing was run.",
            )
        if os.path.exists(path) and path not in SHARED and not beneath(path, tops):
            tops.append(path)
    return tops


def system(layout: Mounts, etc: dict[str, bytes]) -> Iterator[str]:
    for path in SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)
    for name in ETC_FOLDERS:
        if os.path.isdir(f"/etc/{name}"):
            yield from ("--ro-bind", f"/etc/{name}", f"/etc/{name}")
    for path, content in etc.items():
        yield from ("--perms", "0444", "--file", layout.data(content), path)
    yield from ("--symlink", "../tmp", "/var/tmp")


def command_mounts(
    layout: Mounts, command: Command, readonly_sets: Iterable[ReadonlyPaths], private: Private
) -> Iterator[str]:
    """The directories of the command. What lies deeper is mounted later, so that it shows; then
    masks."""
    write = roots(command.write, write=True)
    read = [p for p in roots((*command.read, command.cwd), write=False) if not beneath(p, write)]
    linked = [pair for path in (*write, *read) if (pair := worktree_of(path))]
    read += [common for _, common in linked if not beneath(common, (*write, *read))]
    size = str(command.limits.temporary or (1 << 40))
    home = command.env.get("HOME", "")
    steps: list[tuple[int, int, list[str]]] = [
        (1, 0, ["--perms", "1777", "--size", size, "--tmpfs", "/tmp"])
    ]
    if (
        os.path.isabs(home)
        and os.path.realpath(home) not in SHARED
        and not beneath(os.path.realpath(home), (*write, *read))
    ):
        steps.append(
            (
                _depth(home),
                0,
                ["--perms", "0700", "--size", size, "--tmpfs", os.path.normpath(home)],
            )
        )
    steps += [(_depth(p), 1, layout.bind(p, command.opened.get(p))) for p in read]
    steps += [(_depth(p), 2, layout.bind(p, command.opened.get(p), writable=True)) for p in write]
    masked = private.beneath((*write, *read))
    binds = {bind.path: bind for readonly in readonly_sets for bind in readonly.binds}
    pins = {
        p for path in (*masked, *(s.root for s in readonly_sets)) for p in _between(path, write)
    } - {
        *binds,
        *write,
    }
    steps += [
        (_depth(p), 3, layout.bind(p, None, writable=True)) for p in pins if not beneath(p, masked)
    ]
    steps += [
        (_depth(p), 3, layout.bind(p, b.fd, b.writable))
        for p, b in binds.items()
        if not beneath(p, masked)
    ]
    steps += [(_depth(p), 4, layout.mask(p)) for p in masked]
    for _, _, args in sorted(steps, key=lambda step: step[:2]):
        yield from args
    # Last: nothing can be mounted in a directory that is already read-only.
    for path in masked:
        if os.path.isdir(path):
            yield from ("--remount-ro", path)


def _between(path: str, roots: Iterable[str]) -> Iterator[str]:
    """The directories on the way from a root to a path in it: a program that could rename them
    could put others there."""
    for root in roots:
        if path != root and beneath(path, (root,)):
            above = os.path.dirname(path)
            while above != root:
                yield above
                above = os.path.dirname(above)
            return


def _depth(path: str) -> int:
    return os.path.normpath(path).count("/")
