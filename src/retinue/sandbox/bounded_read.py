"""Files that are read and not trusted: no link leads out of their root, and nothing but a regular
file is opened."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from retinue.formats.safe_text import clean
from retinue.sandbox.open_beneath import open_real
from retinue.sandbox.regular_file import drain, open_regular

MAX_BYTES = 1 << 20


def real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))


def shown(path: str | Path) -> str:
    """A path as a text that can be stored: names of files need not be UTF-8."""
    return clean(str(path))


def is_beneath(path: Path, root: Path) -> bool:
    return path == root or root in path.parents


def read_beneath(
    path: Path, root: Path, cap: int = MAX_BYTES, names: Collection[str] = ()
) -> bytes:
    """The bytes of a file, at most `cap` and one more. `OSError` says why it was not read. The root
    is a real path: a link in its place was put there later, and is not followed.

    Links are resolved first and must stay beneath the root, and lead to a file with one of `names`,
    or of the same kind: what is read goes into a prompt, and no rule about reading is asked. Then
    each component is opened without following any, so that nobody can put a link there in between.
    """
    try:
        target = real(path)
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)) from None
    if not is_beneath(target, root) or target == root:
        raise OSError(errno.EXDEV, f"it leads out of {root}")
    is_kind = target.suffix.lower() == path.suffix.lower() and not target.name.startswith(".")
    if target.name != path.name and not (target.name in names if names else is_kind):
        raise OSError(errno.EPERM, f"it is a link to {target.name}, a file of another kind")
    *folders, name = target.relative_to(root).parts
    at = open_real(str(root))
    try:
        for folder in folders:
            inner = os.open(
                folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at
            )
            os.close(at)
            at = inner
        file = open_regular(name, dir_fd=at, follow=False)
    finally:
        os.close(at)
    return drain(file, cap)


def read_file(path: Path, cap: int = MAX_BYTES) -> bytes:
    """The same for a file of the user's own, whose links are the user's."""
    return drain(open_regular(path), cap)


def walk(folder: Path, suffixes: tuple[str, ...], depth: int) -> Iterator[tuple[Path, str]]:
    """Files with these suffixes, sorted, and folders that were not entered, with the reason."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda e: e.name)
    except OSError as error:
        yield folder, f"not read: {error.strerror}"
        return
    for entry in entries:
        path = folder / entry.name
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth:
                yield from walk(path, suffixes, depth - 1)
        elif entry.is_symlink() and os.path.isdir(path):
            yield path, "a link to a folder; it was not followed"
        elif entry.name.lower().endswith(suffixes):
            yield path, ""
