"""Directories of a tree of runs that are held open. A run's directory is a path that was real when
it was recorded; at every call it is opened anew beneath the directory that the tree was given, and
a link on the way means that someone has put it there. What was opened is what tools use: no one
goes back to the name."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from msgspec.structs import replace

from retinue.core.values import Permissions
from retinue.errors import NotFound, Refused
from retinue.sandbox.open_beneath import DIRECTORY, open_beneath, open_real


class OpenDirectory:
    """`tops` are the directories that the tree was given, as real paths. Each is opened when it is
    first needed and held until `close`. A path that lies in none of them is a top of its own (a
    copy made by us, for one)."""

    def __init__(self, tops: Iterable[str]) -> None:
        self._tops: dict[str, int | None] = dict.fromkeys(tops)
        # a descriptor must not be closed, and its number given away, while a thread opens from it
        self._lock = Lock()
        self._is_closed = False

    @staticmethod
    def by_name(paths: Iterable[str]) -> OpenDirectory:
        """For use outside a runtime: what the names lead to now."""
        return OpenDirectory(os.path.realpath(path) for path in paths)

    def __enter__(self) -> OpenDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, path: str) -> int:
        """A descriptor for a directory of the tree, to be closed by the code that asked."""
        with self._lock:
            if not path.startswith("/"):
                raise NotFound(f"the root {path!r} cannot be opened: it is not an absolute path")
            if self._is_closed:
                raise Refused(
                    "ended", f"{path}: the run that worked there has ended. Nothing was done"
                )
            try:
                return self._open(path)
            except OSError as error:
                raise _translated(error, path) from None

    def _open(self, path: str) -> int:
        tops = [top for top in self._tops if path == top or path.startswith(top.rstrip("/") + "/")]
        top = max(tops, key=len, default=path)
        fd = self._tops.get(top)
        if (
            fd is None or os.readlink(f"/proc/self/fd/{fd}") != top
        ):  # moved or removed, and perhaps made again since
            new, old = open_real(top), fd
            fd = self._tops[top] = new
            if old is not None:
                os.close(old)
        return open_beneath(fd, path[len(top) :].lstrip("/") or ".", DIRECTORY, links=False)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for fd in self._tops.values():
                if fd is not None:
                    os.close(fd)
            self._tops.clear()


class OpenDirectories:
    """One `OpenDirectory` for each tree of which a run is at work; it is closed when the last of
    those has ended."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[OpenDirectory, set[str]]] = {}
        self._tree: dict[str, str] = {}

    def of(self, tree: str, run: str, tops: Sequence[str]) -> OpenDirectory:
        if tree not in self._held:
            self._held[tree] = OpenDirectory(tops), set()
        holding, runs = self._held[tree]
        runs.add(run)
        self._tree[run] = tree
        return holding

    def over(self, run: str) -> None:
        tree = self._tree.pop(run, None)
        if tree is not None:
            holding, runs = self._held[tree]
            runs.discard(run)
            if not runs:
                del self._held[tree]
                holding.close()

    def close(self) -> None:
        for run in list(self._tree):
            self.over(run)


def real_paths(access: Permissions, recorded: Collection[str] = ()) -> Permissions:
    """Directories as they are recorded: without links. Those that were `recorded` before are not
    looked up again, or a link that was put there since would be followed."""
    if not access.read and not access.write:
        return access
    read, write = (
        None
        if paths is None
        else tuple(
            os.path.realpath(path) if os.path.isabs(path) and path not in recorded else path
            for path in paths
        )
        for paths in (access.read, access.write)
    )
    return (
        access
        if (read, write) == (access.read, access.write)
        else replace(access, read=read, write=write)
    )


def checked_directories(options: Mapping[str, Any], recorded: Collection[str] = ()) -> list[str]:
    """The directories among the options of a run whose links are not followed. Those that were
    `recorded` before are opened when a tool needs them. Raises `Refused` for one that a link
    leads to."""
    access = options.get("permissions") or Permissions()
    named = (options.get("cwd") or "", *(access.read or ()), *(access.write or ()))
    paths = [path for path in dict.fromkeys(named) if path and path not in recorded]
    for path in paths:
        if os.path.abspath(path) != path or path.startswith("//"):
            raise Refused("path", f"{path}: this must be an absolute path, without `..`")
        try:
            os.close(open_real(path))
        except OSError as error:
            raise _translated(error, path) from None
    return paths


def _translated(error: OSError, path: str) -> Exception:
    match error.errno:
        case errno.ELOOP | errno.EXDEV:
            return Refused(
                "path",
                f"{path}: this run's directory, or one above it, was replaced by a "
                "symbolic link, which is not followed. Nothing was done. Put the "
                "directory back, or start another run elsewhere.",
            )
        case errno.EACCES | errno.EPERM:
            return Refused("path", f"{path}: permission denied by the system")
    return NotFound(f"the root {path} cannot be opened: {error.strerror}")
