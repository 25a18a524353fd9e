"""The files of a project that need trust, and their content."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from retinue.errors import ConfigError
from retinue.sandbox.bounded_read import open_target, target_beneath
from retinue.sandbox.directory_walk import walk_folders
from retinue.sandbox.open_beneath import open_real
from retinue.sandbox.regular_file import drain

MOST_FILES = 5_000
MOST_BYTES, MOST_TOTAL = 8 << 20, 256 << 20

MOST_FOLDERS = 100_000
MOST_DEPTH = 32
MOST_WAYS = 8
FOLDERS = (
    ".retinue",
    ".claude",
    ".codex",
    ".opencode",
    ".gemini",
    ".cursor",
    ".agents",
    ".github/agents",
    ".github/skills",
)
"""Folders of which everything counts, in every folder of the project."""
FILES = (
    ".mcp.json",
    ".vscode/mcp.json",
    "opencode.json",
    "opencode.jsonc",
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
)
SKIPPED = (".retinue/worktrees", ".claude/worktrees", ".opencode/node_modules")
"""What is in these does not count: copies that runs work in, and packages. No loader looks there;
nothing else is omitted, since a loader might read it."""
HEAVY = {"node_modules", "venv", "target", "dist", "build", "__pycache__", "vendor"}
"""Folders that are not looked through for projects inside of the project. A user who works in one
is still asked."""


def home_of(name: str) -> str:
    """The folder of the project that a file belongs to: `a` for `a/.retinue/config.toml`."""
    parts = name.split("/")
    for n, part in enumerate(parts):
        below = "/".join(parts[n : n + 2])
        if part in FOLDERS or below in FOLDERS or part in FILES or below in FILES:
            return "/".join(parts[:n]) or "."
    return os.path.dirname(name) or "."


def relative(folder: str, root: str) -> str:
    return os.path.relpath(folder, root)


def everywhere(root: str) -> Iterator[str]:
    """All folders of a project in which files could count."""
    try:
        top = open_real(root)
    except OSError:
        yield root
        return
    try:
        for n, (at, inner, _, _) in enumerate(walk_folders(top, lenient=True)):
            if n >= MOST_FOLDERS:
                raise ConfigError(
                    f"{root} has more than {MOST_FOLDERS} folders. Trust a smaller project."
                )
            yield os.path.normpath(os.path.join(root, at))
            inner[:] = (
                sorted(name for name in inner if name not in HEAVY and not name.startswith("."))
                if at.count("/") < MOST_DEPTH
                else []
            )
    finally:
        os.close(top)


def collect(
    root: str, folders: Iterable[str], *, is_read: bool = True
) -> tuple[dict[str, str], dict[str, str]]:
    """The hashes of all files that count in these folders, and those that cannot be trusted with
    the reason."""
    files: dict[str, str] = {}
    refused: dict[str, str] = {}
    entered, n_bytes = Counter[str](), 0
    for folder in folders:
        for path in _counting(folder, root, entered):
            name = relative(path, root)
            try:
                data = content_of(path, root) if is_read else b""
                files[name] = hashlib.sha256(data).hexdigest() if is_read else ""
                n_bytes += len(data)
            except OSError as error:
                refused[name] = error.strerror or str(error)
            if len(files) + len(refused) > MOST_FILES:
                raise _too_many(root, f"{MOST_FILES} files")
            if n_bytes > MOST_TOTAL:
                raise _too_many(root, f"{MOST_TOTAL >> 20} MiB")
    return files, refused


def _too_many(root: str, what: str) -> ConfigError:
    folders = ", ".join(name for name in FOLDERS if os.path.isdir(os.path.join(root, name)))
    return ConfigError(
        f"{root} cannot be trusted: it has more than {what} to trust. Look at what is in "
        f"{folders or 'its folders'}."
    )


def _counting(folder: str, root: str, entered: Counter[str]) -> Iterator[str]:
    for name in FILES:
        path = os.path.join(folder, name)
        if os.path.lexists(path) and not os.path.isdir(path):
            yield path
    for name in FOLDERS:
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            yield from _below(path, root, (), entered, name)


def _below(
    folder: str, root: str, way: tuple[str, ...], entered: Counter[str], top: str = ""
) -> Iterator[str]:
    """Everything in a folder. A link to a folder is followed where it stays in the project: a
    loader might. One that leads back, very deep, or to where many others lead (`entered`: by links,
    a few folders can be very many) is as a file that cannot be trusted."""
    real = os.path.realpath(folder)
    if real in way or len(way) > MOST_DEPTH or (real != folder and entered[real] >= MOST_WAYS):
        yield folder
        return
    entered[real] += 1
    if len(entered) > MOST_FILES:
        raise _too_many(root, f"{MOST_FILES} folders")
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        yield folder  # as a file that cannot be read, and so not be trusted
        return
    try:
        with os.scandir(folder) as listing:
            entries = sorted(islice(listing, MOST_FILES + 1), key=lambda e: e.name)
    except OSError:
        yield folder
        return
    for entry in entries:
        if os.path.isdir(entry.path):
            if f"{top}/{entry.name}" not in SKIPPED:
                yield from _below(entry.path, root, (*way, real), entered)
        else:
            yield entry.path


def content_of(path: str, root: str) -> bytes:
    """The bytes of a file beneath the root; `OSError` for what leads out of it, is not a file, or
    is too long."""
    top = Path(root)
    data = drain(open_target(target_beneath(Path(path), top), top), MOST_BYTES)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES >> 20} MiB")
    return data
