"""Finds the objects of a repository, which must be inside it. Links among them are refused, and so
is another place from which it takes objects, unless that lies in directories that the run was given
anyway: else the content of any repository of the machine could be had for the hash of a commit."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable

from retinue.sandbox.readonly_paths import beneath
from retinue.sandbox.regular_file import read_small

INNER = re.compile(r"[0-9a-f]{2}|pack|info")
MOST_BORROWED = 16


def check(common: str, roots: Iterable[str]) -> tuple[str, ...]:
    """The other places from which a repository takes objects, and those from which these do;
    `OSError` when one lies outside of the roots, or there is a link."""
    allowed = tuple(os.path.realpath(root) for root in roots)
    folders = [f"{common}/objects"]
    for objects in folders:
        _refuse_links(objects)
        for path in _borrowed(objects):
            if not beneath(path, allowed):
                file = f"{objects}/info/alternates"
                raise OSError(
                    errno.EINVAL,
                    f"it uses objects from {path}, which is outside the allowed directories",
                    file,
                )
            if path not in folders and os.path.isdir(path):
                folders.append(path)
            if len(folders) > MOST_BORROWED:
                raise OSError(
                    errno.EINVAL,
                    "it uses objects from too many places",
                    f"{objects}/info/alternates",
                )
    return tuple(folders[1:])


def _borrowed(objects: str) -> list[str]:
    file = f"{objects}/info/alternates"
    try:
        text = os.fsdecode(read_small(file, follow=False))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OSError(error.errno, error.strerror, file) from None
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    if any(line.startswith('"') or "\0" in line for line in lines):
        raise OSError(errno.EINVAL, "it has a path in quotes", file)
    return [os.path.realpath(os.path.join(objects, line)) for line in lines]


def _refuse_links(objects: str) -> None:
    for name in _plain_names(objects):
        if INNER.fullmatch(name):
            with contextlib.suppress(NotADirectoryError, FileNotFoundError):
                _plain_names(f"{objects}/{name}")


def _plain_names(folder: str) -> list[str]:
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise OSError(errno.EINVAL, "it is a link", entry.path)
            names.append(entry.name)
    return names
