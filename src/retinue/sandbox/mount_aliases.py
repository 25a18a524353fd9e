"""The other paths of a directory, where a mount shows it again."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from functools import lru_cache

MOUNTS = "/proc/self/mountinfo"
Mounts = tuple[tuple[str, str, str], ...]


def mountinfo() -> bytes:
    """All mounts, as the kernel tells them; nothing where it does not."""
    try:
        with open(MOUNTS, "rb") as file:
            return file.read()
    except OSError:
        return b""


def lately() -> bytes:
    """The same for what is asked very often: of this second."""
    return _lately(int(time.monotonic()))


@lru_cache(maxsize=1)
def _lately(second: int) -> bytes:
    return mountinfo()


@lru_cache(maxsize=4)
def parsed(text: bytes) -> Mounts:
    """The device, the directory on it, and the place of every mount."""
    rows = [line.split(" ", 5) for line in os.fsdecode(text).split("\n")]
    return tuple((row[2], _unescaped(row[3]), _unescaped(row[4])) for row in rows if len(row) > 5)


def _unescaped(text: str) -> str:
    """Spaces and the like are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def aliases(path: str, mounts: Mounts, *, parts: bool = True) -> Iterator[str]:
    """Every path of a directory: its own, and those under which a mount shows it again, or with
    `parts` something that is in it."""
    real = os.path.realpath(path)
    yield real
    holds = [m for m in mounts if _inside(real, m[2])]
    if not holds:
        return
    device, top, at = max(reversed(holds), key=lambda m: len(m[2]))
    on_device = os.path.normpath(f"{top}/{real[len(at.rstrip('/')) :]}")
    for other, mount_source, where in mounts:
        if other != device or (mount_source, where) == (top, at):
            continue
        if _inside(on_device, mount_source):
            yield os.path.normpath(f"{where}/{on_device[len(mount_source.rstrip('/')) :]}")
        elif parts and _inside(mount_source, on_device):
            yield where


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
