"""Another program's file to which Retinue adds an entry: read and written at its real path. No link
on the way is followed, and it is never half written."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from retinue.errors import ConfigError
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.open_beneath import make_real, open_real
from retinue.sandbox.regular_file import read_small

MOST_BYTES = 16 << 20


def text_of(path: str) -> str | None:
    """What the file says, None if there is none."""
    folder, name = os.path.split(path)
    try:
        with _named(path):
            fd = open_real(folder)
            try:
                return read_small(name, MOST_BYTES, dir_fd=fd, follow=False).decode("utf-8")
            finally:
                os.close(fd)
    except FileNotFoundError:
        return None


def replace_text(path: str, before: str | None, after: str, copy: str) -> None:
    """Write what the file is to say; "" removes it. What it said `before` is kept beside it under
    the name `copy`; "" for no copy."""
    folder, name = os.path.split(path)
    with _named(path):
        fd = make_real(folder)
        try:
            mode = _mode(name, fd)
            if before is not None and copy:
                _mode(copy, fd)
                write_file(copy, before.encode(), mode or 0o600, dir_fd=fd)
            if after:
                write_file(name, after.encode(), mode or 0o600, dir_fd=fd)
            elif before is not None:
                os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """An error names the file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(
            f"{path} cannot be used ({why}). It must be a regular file, without symbolic links on "
            "the way. Nothing was changed."
        ) from None


def _mode(name: str, folder: int) -> int:
    """Who may do what with a file, 0 if there is none. A link or a device is refused."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"{name} is not a regular file")
    return stat.S_IMODE(mode) & 0o777 or 0o600
