"""Walks a directory tree that others may be changing: through open directories, without following
links, and without waiting. (The standard library opens what it took for a directory a moment ago
without saying that it must be one: a pipe that was put there is then waited for.)"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Literal

from retinue.sandbox.gitignore import NAME, Ignores

MAX_DEPTH = 128
"""So many directories are held open at a time."""
TOO_DEEP = f"directories are nested more than {MAX_DEPTH} deep"
NEVER = ".git"
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

EntryKind = Literal["file", "dir", "link", "other"]


@dataclass(frozen=True, slots=True)
class WalkEntry:
    path: str
    kind: EntryKind
    size: int = 0


@dataclass(slots=True)
class Patience:
    """How long and how far a walk may go. `why` says why it stopped early; `n_ignored` what it
    omitted on the way."""

    seconds: float = 10.0
    entries: int = 500_000
    stop: Event = field(default_factory=Event)
    why: str = ""
    n_ignored: int = 0
    n_seen: int = 0
    until: float = 0.0

    def __post_init__(self) -> None:
        self.until = time.monotonic() + self.seconds

    def is_over(self) -> bool:
        if self.stop.is_set():
            self.why = "cancelled"
        elif self.n_seen > self.entries:
            self.why = f"more than {self.entries} entries"
        elif time.monotonic() > self.until:
            self.why = f"it took longer than {self.seconds:g} s"
        return bool(self.why)


def walk_folders(
    top: int, *, lenient: bool = False
) -> Iterator[tuple[str, list[str], list[os.DirEntry[str]], int]]:
    """The directories below an open one, itself first: path, names of directories (which may be
    taken out of the list), everything else, and the open directory. `OSError` when one cannot be
    read or lies too deep; a `lenient` walk leaves it out."""
    levels: list[tuple[int, str, list[str]]] = []
    try:
        levels.append((os.open(".", OPEN, dir_fd=top), ".", [""]))
        while levels:
            fd, at, waiting = levels[-1]
            if not waiting:
                os.close(levels.pop()[0])
                continue
            try:
                if name := waiting.pop():
                    if len(levels) >= MAX_DEPTH:
                        raise OSError(errno.ENAMETOOLONG, TOO_DEEP, at)
                    fd, at, waiting = os.open(name, OPEN, dir_fd=fd), f"{at}/{name}", []
                    levels.append((fd, at, waiting))
                folders, others = folder_entries(fd)
            except OSError:  # gone, replaced by a link, or not ours to read
                if lenient:
                    continue
                raise
            yield at, folders, others, fd
            waiting += reversed(folders)
    finally:
        for fd, *_ in levels:
            os.close(fd)


def folder_entries(fd: int) -> tuple[list[str], list[os.DirEntry[str]]]:
    folders: list[str] = []
    others: list[os.DirEntry[str]] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                others.append(entry)
    return folders, others


def walk_directory(
    dir_fd: int,
    base: str,
    rules: Ignores,
    patience: Patience,
    *,
    depth: int = MAX_DEPTH,
    skip: Sequence[str] = (),
    hides: Callable[[str], bool] = lambda path: False,
) -> Iterator[WalkEntry]:
    """The entries below an open directory, whose own path is `base` ("" for the root), in no
    particular order. The directories in it that are named in `skip` are not entered, and what
    `hides` says by its path is not there."""
    ways: list[Ignores] = []
    for at, folders, others, fd in walk_folders(dir_fd, lenient=True):
        if ways and patience.is_over():
            return
        patience.n_seen += len(folders) + len(others)
        level = at.count("/")
        prefix = "".join(f"{part}/" for part in (base, at[2:]) if part)
        inner = ways[level - 1] if level else rules
        if any(entry.name == NAME for entry in others) or NAME in folders:
            inner = inner.below(fd, len(prefix))
        ways[level:] = [inner]

        def counts(name: str, is_dir: bool, prefix: str = prefix, inner: Ignores = inner) -> bool:
            path = prefix + name
            if name == NEVER or hides(path):
                return False
            is_ignored = inner.match(path, name, is_dir)
            patience.n_ignored += is_ignored
            return not is_ignored

        folders[:] = [name for name in folders if counts(name, True)]
        yield from (WalkEntry(prefix + name, "dir") for name in folders)
        for entry in others:
            if counts(entry.name, False):
                yield WalkEntry(prefix + entry.name, _kind(entry))
        if not level:
            folders[:] = [name for name in folders if name not in skip]
        if level + 1 >= min(depth, MAX_DEPTH):
            if folders and depth >= MAX_DEPTH:
                patience.why = TOO_DEEP
            folders.clear()


def _kind(entry: os.DirEntry[str]) -> EntryKind:
    if entry.is_symlink():
        return "link"
    return "file" if entry.is_file(follow_symlinks=False) else "other"
