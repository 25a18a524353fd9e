"""Paths as a model writes them, opened beneath the roots that a run holds. A `Root` is a directory that is kept open;
`Reach` finds the root that a path belongs to; a `Spot` is the place of one file that is about to be written.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from retinue.errors import NotFound, Refused
from retinue.sandbox.beneath import DIRECTORY, open_beneath
from retinue.sandbox.protected import kernels, protected

MAX_FILE = 10 << 20
MAX_NAME = 255
MAX_PATH = 4095
MAX_HOPS = 8

READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
}


def real_path(fd: int) -> str:
    """Where an open directory is now."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError as error:
        raise Refused("path", "/proc is not there, and without it no path can be checked; nothing was done") from error


class Root:
    """A directory that is held open: what is opened beneath it stays beneath it. `forbids` names the rule that forbids
    a file, by the path that all links have led to, or ""."""

    def __init__(self, path: str, forbids: Callable[[str], str] | None = None) -> None:
        self.path, self._forbids = path, forbids
        try:
            self.fd = os.open(path, DIRECTORY)
        except OSError as error:
            raise NotFound(f"the root {path} cannot be opened: {error.strerror}") from None
        real = os.path.realpath(path)
        self.has_kernel = real == "/" or kernels(real)

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    @property
    def real(self) -> str:
        return real_path(self.fd)

    def open(self, path: str, flags: int) -> int:
        """Open `path` beneath the root; what leads out of it is refused."""
        try:
            return open_beneath(self.fd, path or ".", flags)
        except OSError as error:
            raise self._translated(error, path) from None

    def open_dir(self, path: str) -> int:
        """A directory for reading its entries."""
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._ordinary(fd, path)

    def open_file(self, path: str, limit: int = MAX_FILE) -> tuple[int, os.stat_result]:
        """A regular file of at most `limit` bytes, for reading."""
        probe = self.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            _regular(os.fstat(probe), path, limit)
        finally:
            os.close(probe)
        fd = self.open(path, READ)
        try:
            found = os.fstat(fd)
            _regular(found, path, limit)  # the probe kept us from opening a device; this is the file that was opened
            self.permit(real_path(fd), path)
        except BaseException:
            os.close(fd)
            raise
        return self._ordinary(fd, path), found

    def permit(self, real: str, path: str) -> None:
        """Refuse what a rule of the run forbids. (The gate before the call has only seen what the model wrote.)"""
        if self._forbids is not None and (rule := self._forbids(real)):
            raise Refused("denied", f"{path} may not be used: the rule {rule!r}")

    def _ordinary(self, fd: int, path: str) -> int:
        """A root may hold the kernel's own file systems; the environment of a process is in them, and much else."""
        if self.has_kernel and kernels(real_path(fd)):
            os.close(fd)
            raise Refused("path", f"{path}: what is in /proc, /sys and /dev is not a file of anybody's work")
        return fd

    def read_file(self, path: str, limit: int = MAX_FILE) -> bytes:
        fd, _ = self.open_file(path, limit)
        return drain(fd, path, limit)

    def _translated(self, error: OSError, path: str) -> Exception:
        match error.errno:
            case errno.EXDEV:
                return outside(path)
            case errno.ENOENT:
                return NotFound(f"{path}: there is no such file or directory")
            case errno.ENOTDIR:
                return NotFound(f"{path}: a part of it is a file, not a directory")
            case errno.ELOOP:
                return Refused("path", f"{path}: its symbolic links lead in a circle or out of reach")
            case errno.EACCES | errno.EPERM:
                return Refused("path", f"{path}: the system does not permit it")
            case errno.ENXIO:
                return Refused("path", f"{path}: it is a socket or a device, not a regular file")
        return Refused("path", f"{path}: {error.strerror}")


def drain(fd: int, path: str, limit: int = MAX_FILE) -> bytes:
    """All bytes of an open file, which is closed; one that grows beyond `limit` meanwhile is refused."""
    pieces: list[bytes] = []
    size = 0
    try:
        # A read makes room for all it asks for, so it asks for what the file is said to have.
        while piece := os.read(fd, max(4096, min(limit, os.fstat(fd).st_size) - size + 1)):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise Refused("size", f"{path}: it is longer than {limit} bytes")
    except OSError as error:
        raise Refused("path", f"{path}: {error.strerror}") from None
    finally:
        os.close(fd)
    return b"".join(pieces)


def outside(path: str) -> Refused:
    return Refused(
        "path",
        f"{path}: it lies outside the directories that this run may use; give a path relative to the root, "
        "without leading out of it through .. or links",
    )


def _regular(found: os.stat_result, path: str, limit: int) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR:
        raise Refused("directory", f"{path}: it is a directory")
    if kind != stat.S_IFREG:
        raise Refused("path", f"{path}: it is {KINDS.get(kind, 'a special file')}, not a regular file")
    if found.st_size > limit:
        raise Refused(
            "size",
            f"{path}: it has {found.st_size} bytes and at most {limit} are taken; search it, or use a shell",
        )


def checked_text(path: str) -> str:
    """The path, if a file system could have it."""
    if not path:
        raise Refused("path", "the path is empty; give one relative to the root, or . for the root itself")
    if "\0" in path:
        raise Refused("path", "the path contains a NUL character, which no file name can have")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise Refused("path", "the path contains half a surrogate pair, which is not text") from None
    if size > MAX_PATH:
        raise Refused("path", f"the path has {size} bytes; at most {MAX_PATH} are possible")
    for part in path.split("/"):
        if len(part.encode()) > MAX_NAME:
            raise Refused("path", f"a name in the path is longer than {MAX_NAME} bytes: {part[:40]}...")
    return path


@dataclass(frozen=True, slots=True)
class Reach:
    """The directories that a run may read and write, and the one that its relative paths start from."""

    root: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    forbids: Callable[[str], str] | None = None

    @staticmethod
    def of(
        root: str,
        read: Sequence[str] | None,
        write: Sequence[str] | None,
        forbids: Callable[[str], str] | None = None,
    ) -> Reach:
        """None stands for the root alone; an empty tuple for nothing at all."""
        return Reach(
            root=root,
            read=(root,) if read is None else tuple(read),
            write=(root,) if write is None else tuple(write),
            forbids=forbids,
        )

    @contextmanager
    def reading(self, path: str) -> Iterator[tuple[Root, str]]:
        """The root that `path` may be read from, held open, and the path beneath it."""
        top, rest = self.find(path, "read")
        with Root(top, self.forbids) as root:
            yield root, rest

    @contextmanager
    def writing(self, path: str) -> Iterator[tuple[Root, str]]:
        top, rest = self.find(path, "write")
        with Root(top, self.forbids) as root:
            yield root, rest

    def may_read(self, path: str) -> bool:
        try:
            self.find(path, "read")
        except Refused:
            return False
        return True

    def shown(self, top: str, rest: str) -> str:
        """A path as the run should call it: relative to its root where it lies there."""
        whole = f"{top.rstrip('/')}/{rest}" if rest not in ("", ".") else top
        mine = strip(whole, self.root)
        return whole if mine is None else mine or "."

    def find(self, path: str, act: Literal["read", "write"]) -> tuple[str, str]:
        """The root to which a path belongs, and the rest of the path."""
        whole = checked_text(path)
        if act == "write" and whole.startswith("~"):
            raise Refused("path", f"{path}: ~ is not expanded; give a path relative to the root")
        tops = self.read if act == "read" else self.write
        if not tops:
            raise Refused("path", f"{path}: this run may not {act} any file")
        spellings = [whole]
        if not whole.startswith("/"):
            spellings = [f"{base}/{whole}" for base in (self.root.rstrip("/"), os.path.realpath(self.root))]
        # The longest root wins: it is the one whose links may lead least far.
        for top in sorted(tops, key=len, reverse=True):
            for prefix in (top, os.path.realpath(top)):
                for spelling in spellings:
                    rest = strip(spelling, prefix)
                    if rest is not None:
                        return top, rest or "."
        raise outside(path)


def strip(path: str, top: str) -> str | None:
    """The rest of `path` behind `top`, by whole components, or None. Doubled slashes and single dots do not count."""
    mine = [p for p in path.split("/") if p not in ("", ".")]
    theirs = [p for p in top.split("/") if p not in ("", ".")]
    if mine[: len(theirs)] != theirs:
        return None
    tail = "/" if path.endswith("/") and len(mine) > len(theirs) else ""
    return "/".join(mine[len(theirs) :]) + tail


@dataclass(slots=True)
class Spot:
    """The place of one file: its directory, held open, its name, and what stands there now (None: nothing).

    A symbolic link at the name has been followed, inside the root, before: writing replaces the file that it leads to.
    """

    root: Root
    dir_fd: int
    name: str
    path: str
    found: os.stat_result | None
    made: list[tuple[int, str]] = field(default_factory=list)

    def close(self) -> None:
        os.close(self.dir_fd)
        for fd, _ in self.made:
            os.close(fd)
        self.made.clear()

    def undo(self) -> None:
        """Take away the directories that were made for it, as far as they are empty."""
        for fd, name in reversed(self.made):
            try:
                os.rmdir(name, dir_fd=fd)
            except OSError:
                return

    def check(self) -> None:
        """Refuse what is protected or no longer beneath the root: asked when the spot is found and when it is used."""
        top, here = self.root.real, real_path(self.dir_fd)
        if here != top and not here.startswith(top.rstrip("/") + "/"):
            raise Refused("path", f"{self.path}: its directory was moved out of the root; nothing was written")
        why = protected(f"{here.rstrip('/')}/{self.name}", top)
        self.root.permit(f"{here.rstrip('/')}/{self.name}", self.path)
        if why:
            raise Refused("protected", f"{self.path} may not be changed: {why}. Ask the user to do it by hand.")

    def look(self) -> bool:
        """See anew whether there is a file; what is there and is none is refused."""
        self.found = _lstat(self.name, self.dir_fd)
        if self.found is not None:
            _regular(self.found, self.path, MAX_FILE)
        return self.found is not None

    def read(self) -> bytes:
        """What the file holds now; it is the file that `found` describes."""
        try:
            fd = os.open(self.name, READ | os.O_NOFOLLOW, dir_fd=self.dir_fd)
        except OSError as error:
            raise Refused("path", f"{self.path}: {error.strerror}") from None
        try:
            self.found = os.fstat(fd)
            _regular(self.found, self.path, MAX_FILE)
        except BaseException:
            os.close(fd)
            raise
        return drain(fd, self.path)


@contextmanager
def spot(root: Root, path: str, *, make: bool = False) -> Iterator[Spot]:
    """Find the place that `path` names, through links that stay beneath the root; with `make`, missing directories are
    made. They are taken away again when the body fails."""
    found = locate(root, path, make=make)
    try:
        yield found
    except BaseException:
        found.undo()
        raise
    finally:
        found.close()


def locate(root: Root, path: str, *, make: bool = False) -> Spot:
    at = path
    for _ in range(MAX_HOPS):
        parent, name = os.path.split(at)
        if name in ("", ".", ".."):
            raise Refused("path", f"{path}: it names a directory, not a file")
        dir_fd, made = _directory(root, parent or ".", path, name, make)
        place = Spot(root=root, dir_fd=dir_fd, name=name, path=path, found=None, made=made)
        try:
            place.check()
            place.found = _lstat(name, dir_fd)
            if place.found is None or stat.S_ISREG(place.found.st_mode):
                return place
            if not stat.S_ISLNK(place.found.st_mode):
                _regular(place.found, path, MAX_FILE)
            target = os.readlink(name, dir_fd=dir_fd)
            if target.startswith("/"):
                raise outside(path)
            here = strip(real_path(dir_fd), root.real)
            if here is None:
                raise outside(path)
            at = f"{here}/{target}" if here else target
        except OSError as error:
            place.undo()
            place.close()
            raise Refused("path", f"{path}: {error.strerror}") from None
        except BaseException:
            place.undo()
            place.close()
            raise
        place.close()
    raise Refused("path", f"{path}: too many symbolic links")


def _lstat(name: str, dir_fd: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _directory(root: Root, parent: str, path: str, name: str, make: bool) -> tuple[int, list[tuple[int, str]]]:
    """The directory, open, and those that had to be made (each with its parent, open)."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    missing: list[str] = []
    head = parent
    while True:
        try:
            fd = open_beneath(root.fd, head or ".", flags)
            break
        except FileNotFoundError:
            head, part = os.path.split(head.rstrip("/"))
            if part in ("", ".", ".."):
                raise NotFound(f"{path}: its directory does not exist") from None
            missing.append(part)
        except OSError as error:
            raise root._translated(error, path) from None
    if not missing:
        return fd, []
    made: list[tuple[int, str]] = []
    try:
        planned = Spot(root=root, dir_fd=fd, name="/".join([*reversed(missing), name]), path=path, found=None)
        planned.check()
        if not make:
            raise NotFound(f"{path}: its directory does not exist")
        for part in reversed(missing):
            os.mkdir(part, 0o777, dir_fd=fd)
            made.append((fd, part))
            fd = os.open(part, flags | os.O_NOFOLLOW, dir_fd=fd)
    except BaseException as error:
        Spot(root=root, dir_fd=fd, name="", path=path, found=None, made=made).undo()
        for held in {fd, *(d for d, _ in made)}:
            os.close(held)
        if isinstance(error, OSError):
            raise Refused("path", f"{path}: its directory cannot be made: {error.strerror}") from None
        raise
    return fd, made
