"""Reads files that are not trusted: no link leads out of their root, and only regular files are
opened."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from retinue.formats.safe_text import clean
from retinue.sandbox.directory_walk import walk_folders
from retinue.sandbox.open_beneath import DIRECTORY, open_beneath, open_real
from retinue.sandbox.regular_file import drain, open_regular

MAX_BYTES = 1 << 20
LINKED = "a link to a folder; not followed"


def real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))


def shown(path: str | Path) -> str:
    """A path as a text that can be stored: names of files need not be UTF-8."""
    return clean(str(path))


def is_beneath(path: Path, root: Path) -> bool:
    return path == root or root in path.parents


def target_beneath(path: Path, root: Path) -> Path:
    """What a path leads to now, which must lie beneath the root."""
    try:
        target = real(path)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    if not is_beneath(target, root) or target == root:
        raise OSError(errno.EXDEV, f"outside of {root}")
    return target


def open_target(target: Path, root: Path) -> int:
    """A regular file by its real path. The root is a real path too. No link is followed: one that
    is there now was put there later."""
    folder, name = os.path.split(str(target.relative_to(root)))
    top = open_real(str(root))
    try:
        inner = open_beneath(top, folder or ".", DIRECTORY, links=False)
        try:
            return open_regular(name, dir_fd=inner, follow=False)
        finally:
            os.close(inner)
    finally:
        os.close(top)


def read_beneath(
    path: Path, root: Path, cap: int = MAX_BYTES, names: Collection[str] = ()
) -> bytes:
    """The bytes of a file, at most `cap` and one more. `OSError` says why it was not read.

    Links must stay beneath the root, and lead to a file with one of `names`, or of the same kind:
    what is read goes into a prompt, and no rule about reading is asked."""
    target = target_beneath(path, root)
    is_kind = target.suffix.lower() == path.suffix.lower() and not target.name.startswith(".")
    if target.name != path.name and not (target.name in names if names else is_kind):
        raise OSError(errno.EPERM, f"a link to {target.name}, a file of another kind")
    return drain(open_target(target, root), cap)


def files_below(folder: Path, suffixes: tuple[str, ...], depth: int) -> Iterator[tuple[Path, str]]:
    """Files with these suffixes, sorted, and folders that were not entered, with the reason."""
    try:
        top = open_real(str(real(folder)))
    except OSError as error:
        yield folder, f"not read: {error.strerror}"
        return
    files: list[tuple[tuple[str, ...], str]] = []
    try:
        for at, inner, others, fd in walk_folders(top, lenient=True):
            parts = tuple(at.split("/")[1:])
            inner[:] = [n for n in inner if not n.startswith(".") and len(parts) < depth]
            for entry in others:
                if not entry.name.startswith("."):
                    why = LINKED if _leads_to_folder(entry, fd) else ""
                    if why or entry.name.lower().endswith(suffixes):
                        files.append(((*parts, entry.name), why))
    finally:
        os.close(top)
    yield from ((folder.joinpath(*parts), why) for parts, why in sorted(files))


def _leads_to_folder(entry: os.DirEntry[str], dir_fd: int) -> bool:
    try:
        return entry.is_symlink() and stat.S_ISDIR(os.stat(entry.name, dir_fd=dir_fd).st_mode)
    except OSError:
        return False
