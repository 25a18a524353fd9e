"""Paths of a project: its root, its store, and its host's socket and log. Everything follows from
the directory and the XDG variables, and everything that we make is for its owner alone."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace

from retinue.config.project_root import project_root
from retinue.config.user_folders import (
    beside_database,
    config_home,
    data_home,
    note_file,
    socket_folders,
    state_home,
)
from retinue.errors import ConfigError
from retinue.formats.database_address import is_postgres, shown, wrong_address
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.open_beneath import make_folder
from retinue.sandbox.store_files import refuse_links

__all__ = [
    "ProjectPaths",
    "config_home",
    "data_home",
    "every_store",
    "find",
    "has_source",
    "of_project",
    "prepare",
    "private_directory",
    "state_home",
]

MANY_FILES = 20_000
MANIFESTS = {
    "pyproject.toml",
    "setup.py",
    "package.json",
    "Cargo.toml",
    "go.mod",
    "pom.xml",
    "Makefile",
    "CMakeLists.txt",
}
SOCKET_LIMIT = 107
"""The longest name that a Unix socket can have, in bytes."""


@dataclass(frozen=True, slots=True)
class ProjectPaths:
    """The places of one project. `root` is its directory, `cwd` where the command was given. If the
    runs are in a `database`, `store` is only where the files lie that belong to them."""

    root: str
    cwd: str
    store: str
    socket: str
    log: str
    database: str = ""

    @property
    def shown_store(self) -> str:
        """The store, as people may see it."""
        return shown(self.database) or self.store

    @property
    def plans(self) -> str:
        return self.store + ".plans"

    @property
    def approvals(self) -> str:
        return approvals_of(self.store)

    @property
    def key(self) -> str:
        return key_of(self.socket)

    @property
    def exists(self) -> bool:
        return bool(self.database) or os.path.exists(self.store)


def approvals_of(store: str) -> str:
    """In a folder, not beside the store: it is replaced when it changes, and a mask over it would
    go."""
    return os.path.join(store + ".plans", "approvals.json")


def sessions_of(store: str) -> str:
    """Which browsers are signed in, by the hashes of their cookies."""
    return os.path.join(store + ".plans", "sessions.json")


def key_of(socket: str) -> str:
    """The file with what a command has to show to the host that listens there."""
    return socket + ".key"


def find(environ: Mapping[str, str], *, cwd: str = "", store: str = "") -> ProjectPaths:
    """The places for a command given in `cwd`, with the store that was named or the one of the
    project."""
    try:
        here = os.path.abspath(cwd or os.getcwd())
    except FileNotFoundError:
        raise ConfigError(
            "The current directory no longer exists. Change to another one, or pass --cwd."
        ) from None
    if not os.path.isdir(here):
        raise ConfigError(f"Directory {here} not found. Check --cwd.")
    root = project_root(here, environ.get("HOME", ""))
    if why := wrong_address(store):
        raise ConfigError(why)
    if is_postgres(store):
        file = beside_database(environ, store)
        name = os.path.basename(os.path.dirname(file))
    elif store:
        file = os.path.realpath(os.path.expanduser(store))
        if os.path.isdir(file):
            raise ConfigError(f"The store {file} is a directory. Name a file.")
        refuse_links(file)
        name = _key(file)
    else:
        name = _key(os.path.realpath(root))
        file = os.path.join(data_home(environ), "projects", name, "retinue.db")
    log = os.path.join(state_home(environ), "log", f"{name}.log")
    return ProjectPaths(
        root=root,
        cwd=here,
        store=file,
        socket=_socket(environ, file, name),
        log=log,
        database=store if is_postgres(store) else "",
    )


def has_source(cwd: str) -> bool:
    """Whether this is a directory with something to map: a project, or one that says how it is
    built."""
    try:
        names = set(os.listdir(cwd))
    except OSError:
        return False
    return os.path.isdir(os.path.join(project_root(cwd), ".git")) or bool(names & MANIFESTS)


def name_and_size(cwd: str) -> tuple[str, str]:
    """What a project is called, and how many files it has; those of hidden folders do not count,
    and of many only that they are many."""
    n = 0
    for _, folders, files in os.walk(project_root(cwd)):
        folders[:] = [name for name in folders if not name.startswith(".")]
        n += len(files)
        if n > MANY_FILES:
            break
    size = f"more than {MANY_FILES:,} files" if n > MANY_FILES else f"{n:,} files"
    size = "1 file" if n == 1 else size
    return os.path.basename(project_root(cwd)) or cwd, size


def prepare(environ: Mapping[str, str], paths: ProjectPaths, *, is_project: bool) -> None:
    """Make the directories of the store, the socket and the log, each for its owner alone."""
    private_directory(os.path.dirname(paths.log))
    private_directory(os.path.dirname(paths.store), strict=is_project or bool(paths.database))
    private_directory(paths.plans)
    ours = os.path.dirname(paths.socket)
    private_directory(ours, strict=ours != os.path.dirname(paths.store))
    if is_project:
        label = os.path.join(os.path.dirname(paths.store), "project.json")
        if not os.path.exists(label):
            write_file(label, json.dumps({"root": paths.root}).encode() + b"\n")
    elif not paths.database:
        note_file(environ, paths.store)


def private_directory(path: str, *, strict: bool = False) -> None:
    """Make a directory, and those above it that are missing, with rights for no one else. A
    directory that is there already is not changed, unless `strict`: then it must be ours alone."""
    make_folder(path)
    if strict:
        info = os.stat(path)
        if info.st_uid != os.getuid():
            raise ConfigError(f"{path} is owned by another user. Use another --store.")
        if stat.S_IMODE(info.st_mode) & 0o077:
            os.chmod(path, 0o700)


def every_store(environ: Mapping[str, str]) -> list[str]:
    """The stores of all projects."""
    folder = os.path.join(data_home(environ), "projects")
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    return [
        file for name in names if os.path.exists(file := os.path.join(folder, name, "retinue.db"))
    ]


def _key(path: str) -> str:
    name = (
        "".join(c if c.isalnum() or c in "-_." else "-" for c in os.path.basename(path))[:40]
        or "root"
    )
    return f"{name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _socket(environ: Mapping[str, str], store: str, name: str) -> str:
    *runtime, last = socket_folders(environ)
    candidate = os.path.join(runtime[0], f"{name}.sock") if runtime else store + ".sock"
    if len(os.fsencode(candidate)) <= SOCKET_LIMIT:
        return candidate
    return os.path.join(last, f"{hashlib.sha256(os.fsencode(store)).hexdigest()[:16]}.sock")


def of_project(environ: Mapping[str, str], paths: ProjectPaths, name: str) -> ProjectPaths:
    """The places of a project that is known by the name of its folder among all projects."""
    log = os.path.join(state_home(environ), "log", f"{name}.log")
    return replace(paths, socket=_socket(environ, paths.store, name), log=log)
