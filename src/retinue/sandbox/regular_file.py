"""Reads a file that others may have created: only regular files, without blocking, and never more
than requested. A pipe, a device or a file without an end is an `OSError` with the reason
immediately."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

SMALL = 1 << 20
LOCK_SECONDS = 10.0
FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
Path = str | os.PathLike[str]


def open_regular(path: Path, *, dir_fd: int | None = None, follow: bool = True) -> int:
    """A descriptor of a regular file. It is looked at first, since to open some devices is to use
    them, and again when it is open."""
    try:
        _check(os.stat(path, dir_fd=dir_fd, follow_symlinks=follow))
        fd = os.open(path, FLAGS | (0 if follow else os.O_NOFOLLOW), dir_fd=dir_fd)
    except ValueError as error:  # a NUL character in the name
        raise OSError(errno.EINVAL, str(error)) from None
    try:
        _check(os.fstat(fd))
    except OSError:
        os.close(fd)
        raise
    return fd


def _check(info: os.stat_result) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise OSError(
            errno.ELOOP, os.strerror(errno.ELOOP)
        )  # as one that is opened without following it
    if not stat.S_ISREG(info.st_mode):
        kind = errno.EISDIR if stat.S_ISDIR(info.st_mode) else errno.EINVAL
        raise OSError(kind, "it is not a regular file")


def drain(fd: int, most: int) -> bytes:
    """Up to `most` bytes, and one more if there is more; the descriptor is closed."""
    try:
        data = bytearray()
        while len(data) <= most and (piece := os.read(fd, min(1 << 20, most + 1 - len(data)))):
            data += piece
        return bytes(data)
    finally:
        os.close(fd)


def read_small(
    path: Path, most: int = SMALL, *, dir_fd: int | None = None, follow: bool = True
) -> bytes:
    """The whole of a file of at most `most` bytes."""
    data = drain(open_regular(path, dir_fd=dir_fd, follow=follow), most)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
    return data


def read_text(path: Path, most: int = SMALL) -> str:
    """The same as text in UTF-8; what is none is kept, as in names of files."""
    return read_small(path, most).decode("utf-8", "surrogateescape")


def lock(fd: int, seconds: float = LOCK_SECONDS) -> None:
    """Lock an open file for this process alone. A long lock of another process is not waited
    for."""
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise OSError(
                    errno.EBUSY, f"another process has locked it for {seconds:g} s"
                ) from None
            time.sleep(0.01)
