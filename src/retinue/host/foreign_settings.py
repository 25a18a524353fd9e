"""Files of settings that belong to other programs: read and replaced whole, at a real path, without
following a link on the way."""

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


def read_settings(path: str) -> str | None:
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


def replace_settings(path: str, text: str, copy: str | None, suffix: str) -> None:
    """Write `text`, or remove the file if there is none; `copy` is written first, beside it, with
    this `suffix`."""
    folder, name = os.path.split(path)
    with _named(path):
        fd = make_real(folder)
        try:
            mode = _mode(name, fd)
            if copy is not None:
                _mode(name + suffix, fd)
                write_file(name + suffix, copy.encode(), mode or 0o600, dir_fd=fd)
            if text:
                write_file(name, text.encode(), mode or 0o600, dir_fd=fd)
            elif mode:
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
