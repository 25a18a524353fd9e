"""Which programs the host may start: only those that no command it started could have created. PATH
often has a directory of the project (`.venv/bin`, `node_modules/.bin`), and who writes there could
name a file `rg`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator

from retinue.sandbox import protected_paths as protected

# Never given to be written (`layout.SHARED`), nor anything in them that belongs to the machine.
SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/run/current-system",
    "/snap",
)
OPEN_TO_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def find(name: str, path: str | None = None, away: Iterable[str] = ()) -> tuple[str, str]:
    """The program, and of one that was passed over why; each is "" if there is none. `path` is like
    PATH, which is the default. Nothing in the directories `away` is taken, wherever they lie."""
    roots = tuple(top for root in away for top in (root, os.path.realpath(root)))
    refused = ""
    for folder in (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep):
        if not os.path.isabs(folder):
            continue  # what it means depends on where this process is
        there = os.path.join(folder, name)
        if not os.access(there, os.X_OK) or not os.path.isfile(there):
            continue
        if why := untrusted(there, roots):
            refused = refused or f"{there} is not used: {why}."
        else:
            return os.path.join(os.path.realpath(folder), name), refused
    return "", refused


def untrusted(program: str, roots: Iterable[str] = ()) -> str:
    """Why a program must not be started by the host, or "". Both names count, the one on PATH and
    the real one: a user who can change either chooses what is run."""
    tops = tuple(roots)
    named = os.path.join(os.path.realpath(os.path.dirname(program)), os.path.basename(program))
    for path in dict.fromkeys((named, os.path.realpath(program))):
        if any(path.startswith(top.rstrip("/") + "/") for top in tops):
            return "it is in a directory where runs work"
        if why := _changeable(path):
            return why
    return ""


def _changeable(path: str) -> str:
    """Why someone else, or a command of ours, could put another in its place; or ""."""
    is_system = any(path.startswith(f"{top}/") for top in SYSTEM)
    owners = set()
    for at in _upwards(path):
        try:
            info = os.lstat(at)
        except OSError:
            return "it cannot be checked"
        # In a container the system's own may belong to no one that is known, and administrators
        # have groups.
        if not is_system and info.st_uid not in (0, os.geteuid()):
            return f"{at} belongs to another user"
        is_open = info.st_mode & (stat.S_IWOTH if is_system else OPEN_TO_OTHERS)
        if is_open and not stat.S_ISLNK(info.st_mode) and not info.st_mode & stat.S_ISVTX:
            return f"other users can write in {at}"
        owners.add(info.st_uid)
    # A command has our user id, so what belongs to root is out of its reach unless we are root.
    is_roots = owners == {0} and os.geteuid() != 0
    if is_system or is_roots or protected.workplace(os.path.dirname(path)):
        return ""
    return "it is in a directory that a command could be allowed to write; install it system-wide"


def _upwards(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = os.path.dirname(path)


def python() -> str:
    """The interpreter itself, for parts of ours that need no library: a link to it could be in the
    project."""
    return os.path.realpath(sys.executable) if sys.executable else ""
