"""Writes an answer to a file that the user named. A run could have put a link on the way there
meanwhile, so what the name leads to is settled before the run begins, and no link is followed when
it is written."""

from __future__ import annotations

import contextlib
import os
import stat

from retinue.errors import ConfigError, RetinueError
from retinue.sandbox.atomic_write import umask, write_file
from retinue.sandbox.open_beneath import make_real
from retinue.sandbox.protected_paths import kernels


def settled(path: str, cwd: str) -> str:
    """The file that a name means now. A link at its end is replaced by the answer, not followed; a
    device, a pipe or a directory is not replaced."""
    folder, name = os.path.split(os.path.join(cwd, os.path.expanduser(path)))
    target = os.path.join(os.path.realpath(folder), name)
    with contextlib.suppress(OSError):
        mode = os.lstat(target).st_mode
        if kernels(target) or not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise ConfigError(
                f"{target} is not a regular file, so the answer cannot be written there. "
                "Name another file."
            )
    return target


def write(target: str, text: str) -> None:
    """The text in the file, whole or not at all; `target` is what `settled` gave."""
    folder, name = os.path.split(target)
    try:
        fd = make_real(folder)
        try:
            data = (text if text.endswith("\n") else text + "\n").encode()
            write_file(name, data, 0o666 & ~umask(), durable=False, dir_fd=fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise RetinueError(
            f"{target} was not written ({error.strerror}). Nothing there was changed. "
            "`retinue show` prints the answer. A symbolic link that was created after "
            "the command started is not followed."
        ) from None
