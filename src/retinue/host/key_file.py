"""The token of a host, in a file that only its owner can read and no sandbox sees."""

from __future__ import annotations

import contextlib
import os
import secrets


def new_key(path: str) -> str:
    """A new one for each host, in a file that was not there before."""
    key = secrets.token_hex(32)
    remove(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(key)
    return key


def remove(*paths: str) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
