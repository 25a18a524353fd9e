"""Going through a directory tree: one pass of `scandir`, each directory opened from the one above
it, so that a link is never followed and nothing outside is seen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Literal

from retinue.sandbox.gitignore import NAME, Ignores

MAX_DEPTH = 128
NEVER = ".git"
OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Kind = Literal["file", "dir", "link", "other"]


@dataclass(frozen=True, slots=True)
class WalkEntry:
    path: str
    kind: Kind
    size: int = 0


@dataclass(slots=True)
class Patience:
    """How long and how far a walk may go. `why` says why it stopped early; `n_ignored` what it left
    out on the way."""

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
            self.why = "it was cancelled"
        elif self.n_seen > self.entries:
            self.why = f"there are more than {self.entries} entries"
        elif time.monotonic() > self.until:
            self.why = f"it took longer than {self.seconds:g} seconds"
        return bool(self.why)


def walk(
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
    levels: list[tuple[int, str, Ignores, list[str]]] = []
    try:
        yield from _enter(
            levels, os.dup(dir_fd), f"{base}/" if base else "", rules, patience, hides
        )
        while levels:
            fd, prefix, rules, names = levels[-1]
            if not names or patience.is_over():
                os.close(levels.pop()[0])
                continue
            name = names.pop()
            if len(levels) == 1 and name in skip:
                continue
            if len(levels) >= min(depth, MAX_DEPTH):
                if depth >= MAX_DEPTH:
                    patience.why = f"directories are nested more than {MAX_DEPTH} deep"
                continue
            try:
                below = os.open(name, OPEN, dir_fd=fd)
            except OSError:  # gone, replaced by a link, or not ours to read
                continue
            yield from _enter(levels, below, f"{prefix}{name}/", rules, patience, hides)
    finally:
        for fd, *_ in levels:
            os.close(fd)


def _enter(
    levels: list[tuple[int, str, Ignores, list[str]]],
    fd: int,
    prefix: str,
    rules: Ignores,
    patience: Patience,
    hides: Callable[[str], bool],
) -> Iterator[WalkEntry]:
    """Yield what is in a directory, and put it on the stack with the names of its directories."""
    directories: list[str] = []
    levels.append((fd, prefix, rules, directories))
    try:
        with os.scandir(fd) as entries:
            found = list(entries)
    except OSError:
        return
    patience.n_seen += len(found)
    if any(e.name == NAME for e in found):
        rules = rules.below(fd, len(prefix))
        levels[-1] = (fd, prefix, rules, directories)
    for entry in found:
        name = entry.name
        if name == NEVER:
            continue
        path = prefix + name
        if hides(path):
            continue
        is_dir = entry.is_dir(follow_symlinks=False)
        if rules.match(path, name, is_dir):
            patience.n_ignored += 1
            continue
        if is_dir:
            directories.append(name)
            yield WalkEntry(path, "dir")
        elif entry.is_symlink():
            yield WalkEntry(path, "link")
        elif entry.is_file(follow_symlinks=False):
            yield WalkEntry(path, "file")
        else:
            yield WalkEntry(path, "other")
