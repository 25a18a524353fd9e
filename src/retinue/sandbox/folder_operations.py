"""Removes and copies directories that others may be changing: through open directories, without
following links, and without waiting."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from retinue.sandbox.directory_walk import MAX_DEPTH, OPEN, folder_entries, walk_folders
from retinue.sandbox.regular_file import open_regular

LOOK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PIECE = 1 << 20


def remove(name: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """Take away what has this name, with everything in it. What cannot be taken away stays."""
    name = os.fspath(name)
    try:
        top = _enter(name, dir_fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=dir_fd)
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=dir_fd)


def _enter(name: str, dir_fd: int | None) -> int:
    """Open a directory that is to be emptied, also one that its owner has closed to everyone."""
    try:
        return os.open(name, OPEN, dir_fd=dir_fd)
    except PermissionError:
        fd = os.open(name, LOOK, dir_fd=dir_fd)
        try:
            os.chmod(f"/proc/self/fd/{fd}", 0o700)
        finally:
            os.close(fd)
        return os.open(name, OPEN, dir_fd=dir_fd)


def _empty(top: int) -> None:
    """Depth first. What lies deeper than descriptors allow is moved up to the top and taken away
    from there."""
    levels: list[tuple[int, str, list[str]]] = [(os.dup(top), "", [])]
    try:
        levels[0][2].extend(_cleared(top))
        while levels:
            fd, name, waiting = levels[-1]
            if waiting:
                below = waiting.pop()
                if len(levels) >= MAX_DEPTH:
                    up = f"deep-{os.urandom(8).hex()}"
                    with contextlib.suppress(OSError):
                        os.rename(below, up, src_dir_fd=fd, dst_dir_fd=top)
                        levels[0][2].append(up)
                    continue
                with contextlib.suppress(OSError):
                    inner = _enter(below, fd)
                    levels.append((inner, below, []))
                    levels[-1][2].extend(_cleared(inner))
                continue
            os.close(levels.pop()[0])
            if levels:
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=levels[-1][0])
    finally:
        for fd, *_ in levels:
            os.close(fd)


def _cleared(fd: int) -> list[str]:
    """Unlink what is not a directory; the names of those that are."""
    with contextlib.suppress(OSError):
        os.fchmod(fd, 0o700)
    try:
        folders, others = folder_entries(fd)
    except OSError:
        return []
    for other in others:
        with contextlib.suppress(OSError):
            os.unlink(other.name, dir_fd=fd)
    return folders


def copy(dir_fd: int, name: str, target: str, *, most_bytes: int, most_files: int) -> None:
    """A copy of files, directories and links, up to so many; `OSError` when it is more, or anything
    else."""
    allowance = [most_bytes, most_files]
    info = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not stat.S_ISDIR(info.st_mode):
        _copy_one(dir_fd, name, target, allowance)
        return
    fd = os.open(name, OPEN, dir_fd=dir_fd)
    try:
        for at, folders, others, here in walk_folders(fd):
            place = os.path.normpath(f"{target}/{at}")
            _count(allowance, 0)
            os.mkdir(place, 0o700)
            for other in others:
                _copy_one(here, other.name, f"{place}/{other.name}", allowance)
            folders.sort()
    finally:
        os.close(fd)


def _copy_one(dir_fd: int, name: str, target: str, allowance: list[int]) -> None:
    _count(allowance, 0)
    if stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
        os.symlink(os.readlink(name, dir_fd=dir_fd), target)
        return
    fd = open_regular(name, dir_fd=dir_fd, follow=False)
    try:
        mode = stat.S_IMODE(os.fstat(fd).st_mode) & 0o700
        with open(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode | 0o600), "wb"
        ) as file:
            while piece := os.read(fd, PIECE):
                _count(allowance, len(piece), n_files=0)
                file.write(piece)
    finally:
        os.close(fd)


def _count(allowance: list[int], n_bytes: int, n_files: int = 1) -> None:
    allowance[0] -= n_bytes
    allowance[1] -= n_files
    if min(allowance) < 0:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
