"""Opens paths that a model wrote, under the roots of its run. A `Root` is a directory that is kept
open; `AllowedRoots` finds the root that a path belongs to; a `FileLocation` is the place of one
file that is about to be written. What was opened is asked where it is; a name is never looked at
twice."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from retinue.errors import NotFound, Refused
from retinue.sandbox.open_beneath import open_beneath
from retinue.sandbox.open_directories import OpenDirectory
from retinue.sandbox.path_checks import MAX_FILE, READ, checked_text, drain, outside, regular, strip
from retinue.sandbox.private_paths import NOTHING, Private
from retinue.sandbox.protected_paths import kernels


def real_path(fd: int) -> str:
    """Where an open directory is now."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError as error:
        raise Refused(
            "path",
            "/proc is not available, and without it no path can be checked. Nothing was done",
        ) from error


class Root:
    """A directory that is held open: what is opened beneath it stays beneath it. `path` is its
    name, `fd` what the `holding` has opened by it. `forbids` names the rule that forbids a file, by
    the path that all links have led to, or ""; `private` is what no one is shown."""

    def __init__(
        self,
        path: str,
        forbids: Callable[[str], str] | None = None,
        holding: OpenDirectory | None = None,
        private: Private = NOTHING,
    ) -> None:
        self._forbids, self._private = forbids, private
        if holding is None:
            with OpenDirectory.by_name((path,)) as briefly:
                path = os.path.realpath(path)
                self.fd = briefly.open(path)
        else:
            self.fd = holding.open(path)
        self.path = path
        real = self.real
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
            raise self.translated(error, path) from None

    def open_dir(self, path: str) -> int:
        """A directory for reading its entries."""
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._refuse_private(real_path(fd), path)
        except BaseException:
            os.close(fd)
            raise
        return self._ordinary(fd, path)

    def open_file(self, path: str, limit: int = MAX_FILE) -> tuple[int, os.stat_result]:
        """A regular file of at most `limit` bytes, for reading: the one that was looked at, not
        another of its name."""
        probe = self.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            info = os.fstat(probe)
            regular(info, path, limit)
            self.permit(real_path(probe), path)
            try:
                fd = os.open(f"/proc/self/fd/{probe}", READ)
            except OSError as error:
                raise self.translated(error, path) from None
        finally:
            os.close(probe)
        try:
            self.refuse_link(info, path)
        except BaseException:
            os.close(fd)
            raise
        return self._ordinary(fd, path), info

    def permit(self, real: str, path: str) -> None:
        """Refuse what is private or what a rule of the run forbids. (The gate before the call has
        only seen what the model wrote.)"""
        self._refuse_private(real, path)
        if self._forbids is not None and (rule := self._forbids(self.named(real, path))):
            raise Refused("denied", f"{path} cannot be used: rule {rule!r}")

    def _refuse_private(self, real: str, path: str) -> None:
        if why := self._private.why(real, self.real):
            raise Refused(
                "private",
                f"{path} cannot be used: {why}. If you need it, ask the user for a copy.",
            )

    def refuse_link(self, info: os.stat_result, path: str) -> None:
        """A file that is private may have a second name, by which no one would know it."""
        if self._private.is_linked(info):
            raise Refused(
                "private",
                f"{path} cannot be used: it is another name (a hard link) of a private file.",
            )

    def hides(self) -> Callable[[str], bool]:
        """Whether a path beneath the root is not to be listed."""
        return self._private.hides(self.real)

    def named(self, real: str, path: str) -> str:
        """The name of a file, from where it really is: that of the root, and the way from there."""
        rest = strip(real, self.real)
        if rest is None:
            raise Refused("path", f"{path}: moved out of the root meanwhile. Nothing was done")
        return f"{self.path.rstrip('/')}/{rest}"

    def _ordinary(self, fd: int, path: str) -> int:
        """A root may hold the kernel's own file systems; the environment of a process is in them,
        and much else."""
        if self.has_kernel and kernels(real_path(fd)):
            os.close(fd)
            raise Refused("path", f"{path}: files in /proc, /sys and /dev cannot be used")
        return fd

    def read_file(self, path: str, limit: int = MAX_FILE) -> bytes:
        fd, _ = self.open_file(path, limit)
        return drain(fd, path, limit)

    def translated(self, error: OSError, path: str) -> Exception:
        match error.errno:
            case errno.EXDEV:
                return outside(path)
            case errno.ENOENT:
                return NotFound(f"{path}: no such file or directory")
            case errno.ENOTDIR:
                return NotFound(f"{path}: part of this path is a file, not a directory")
            case errno.ELOOP:
                return Refused(
                    "path", f"{path}: its symbolic links form a circle or lead out of reach"
                )
            case errno.EACCES | errno.EPERM:
                return Refused("path", f"{path}: permission denied by the system")
            case errno.ENXIO:
                return Refused("path", f"{path}: this is a socket or a device, not a regular file")
        return Refused("path", f"{path}: {error.strerror}")


@dataclass(frozen=True, slots=True)
class AllowedRoots:
    """The directories that a run may read and write, and the one that its relative paths start
    from. `forbids` names the rule that forbids a file to the tool; `hides`, why its content may not
    be shown."""

    root: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    forbids: Callable[[str], str] | None = None
    hides: Callable[[str], str] | None = None
    holding: OpenDirectory | None = None
    private: Private = NOTHING

    @staticmethod
    def of(
        root: str,
        read: Sequence[str] | None,
        write: Sequence[str] | None,
        forbids: Callable[[str], str] | None = None,
        hides: Callable[[str], str] | None = None,
        holding: OpenDirectory | None = None,
        private: Private = NOTHING,
    ) -> AllowedRoots:
        """None means the root alone; an empty tuple means nothing at all."""
        return AllowedRoots(
            root=root,
            read=(root,) if read is None else tuple(read),
            write=(root,) if write is None else tuple(write),
            forbids=forbids,
            hides=hides,
            holding=holding,
            private=private,
        )

    @contextmanager
    def reading(self, path: str) -> Iterator[tuple[Root, str]]:
        """The root that `path` may be read from, held open, and the path beneath it."""
        top, rest = self.find(path, "read")
        with self.open(top) as root:
            yield root, rest

    def open(self, top: str) -> Root:
        return Root(top, self.forbids, self.holding, self.private)

    def unshown(self, path: str) -> str:
        """Why the content of a file that may be written may not be shown, or ""; `path` is where it
        really is."""
        if not any(strip(path, top) is not None for top in self.read):
            return "it is outside of what this run may read"
        return self.hides(path) if self.hides is not None else ""

    def shown(self, top: str, rest: str) -> str:
        """A path as the run should call it: relative to its root where it lies there."""
        whole = f"{top.rstrip('/')}/{rest}" if rest not in ("", ".") else top
        mine = strip(whole, self.root)
        return whole if mine is None else mine or "."

    def find(self, path: str, act: Literal["read", "write"]) -> tuple[str, str]:
        """The root to which a path belongs, and the rest of the path."""
        whole = checked_text(path)
        if act == "write" and whole.startswith("~"):
            raise Refused("path", f"{path}: ~ is not expanded. Give a path relative to the root")
        tops = self.read if act == "read" else self.write
        if not tops:
            raise Refused("path", f"{path}: this run cannot {act} any file")
        spelling = whole if whole.startswith("/") else f"{self.root.rstrip('/')}/{whole}"
        # The longest root wins: it is the one whose links may lead least far.
        for top in sorted(tops, key=len, reverse=True):
            rest = strip(spelling, top)
            if rest is not None:
                return top, rest or "."
        raise outside(path)
