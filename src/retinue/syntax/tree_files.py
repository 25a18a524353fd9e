"""The files of a tree as the engine sees them: entries with a stamp, and the bytes of one. Nothing
is followed out of the tree, and nothing is waited for."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from retinue.formats.safe_text import clean
from retinue.sandbox.directory_walk import Patience, walk_directory
from retinue.sandbox.gitignore import chain
from retinue.sandbox.open_beneath import open_beneath
from retinue.sandbox.regular_file import drain, open_regular

Stamp = tuple[int, int, int, int]
"""Size, times of the content and of the entry in nanoseconds, and number: what changes with it."""


class FileEntry(Struct, frozen=True, gc=False):
    """`kind` is file, link or other. `path` is relative to the tree."""

    path: str
    kind: str
    stamp: Stamp = (0, 0, 0, 0)

    @property
    def size(self) -> int:
        return self.stamp[0]


class TreeFiles(Protocol):
    """`key` names the tree in the cache. `read` raises OSError for what cannot be read now."""

    @property
    def key(self) -> str: ...

    def entries(self) -> tuple[list[FileEntry], str]:
        """All entries that are no folders, sorted, and why there may be more, or ""."""

    def read(self, path: str, most: int) -> bytes:
        """The bytes of a regular file, at most `most` and one more."""


@dataclass(frozen=True, slots=True)
class OpenTree:
    """The files below an open directory. `hides` says what is not there, by its path in the tree;
    `base` is the way from `top`, where ignore files begin to count, to the directory. `bars` says
    that a file is the same as a private one."""

    key: str
    fd: int
    top: int
    base: str
    hides: Callable[[str], bool]
    patience: Patience
    skip: tuple[str, ...] = ()
    bars: Callable[[os.stat_result], bool] = lambda files: False

    def hides_inside(self, path: str) -> bool:
        """Whether a path in the tree is hidden from the reader."""
        whole = f"{self.base}/{path}" if self.base else path
        parts = whole.split("/")
        return any(self.hides("/".join(parts[: n + 1])) for n in range(len(parts)))

    def entries(self) -> tuple[list[FileEntry], str]:
        inner = len(self.base) + 1 if self.base else 0
        walk = walk_directory(
            self.fd,
            self.base,
            chain(self.top, self.base),
            self.patience,
            skip=self.skip,
            hides=self.hides,
        )
        names = sorted((e.path[inner:], e.kind) for e in walk if e.kind != "dir")
        out: list[FileEntry] = []
        for path, kind in names:
            if not _is_text(path):
                out.append(FileEntry(clean(path), "other"))
            else:
                out.append(self._stamped(path) if kind == "file" else FileEntry(path, kind))
        return out, self.patience.why

    def _stamped(self, path: str) -> FileEntry:
        try:
            s = os.stat(path, dir_fd=self.fd, follow_symlinks=False)
        except (OSError, ValueError):
            return FileEntry(path, "other")
        if self.bars(s):
            return FileEntry(path, "other")
        return FileEntry(path, "file", (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino))

    def read(self, path: str, most: int) -> bytes:
        """No link on the way is followed: one that is there now was put there later."""
        folder, _, name = path.rpartition("/")
        above = open_beneath(
            self.fd, folder or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, links=False
        )
        try:
            fd = open_regular(name, dir_fd=above, follow=False)
            if self.bars(os.fstat(fd)):
                os.close(fd)
                raise OSError(errno.EACCES, "it is another name of a private file")
            return drain(fd, most)
        finally:
            os.close(above)


def _is_text(path: str) -> bool:
    """Whether a name can be shown at all: names of files need not be UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def folder_files(path: str, seconds: float = 60.0) -> Iterator[OpenTree]:
    """The files of a folder for a reader who may read all of it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        patience = Patience(seconds=seconds)
        yield OpenTree(os.path.realpath(path), fd, fd, "", lambda path: False, patience)
    finally:
        os.close(fd)
