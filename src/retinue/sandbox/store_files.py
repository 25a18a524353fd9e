"""Recognizes files that belong to a store."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from retinue.errors import StoreError

# What lies beside the file of a store and has its name, with one of these behind it. Files that are
# written anew are kept inside of the folders: replacing a file that is masked in a sandbox removes
# the mask with it.
FOLDERS = (".tools", ".plans", ".artifacts")
TAILS = (*FOLDERS, "-wal", "-shm", "-journal", ".lock", ".sent", ".sock", ".sock.key")
# The head of a database file that is one of ours.
MAGIC, APPLICATION = b"SQLite format 3\0", (0x52455431).to_bytes(4, "big")


def stores_in(folder: str) -> Iterator[str]:
    """The stores at the top of a directory, of whatever program: they are known by their heads."""
    try:
        names = {name for name in os.listdir(folder) if name.endswith(".lock")}
    except OSError:
        return
    for name in names:
        if is_store(path := f"{folder.rstrip('/')}/{name.removesuffix('.lock')}"):
            yield path


def refuse_links(store: str) -> None:
    """What lies beside a store must be what it seems: through a link, files of someone else would
    be written over, and what is kept there would lie where nothing hides it."""
    for tail in TAILS:
        with suppress(OSError):
            mode = os.lstat(store + tail).st_mode
            if stat.S_ISLNK(mode):
                what = "a link"
            elif stat.S_ISDIR(mode) != (tail in FOLDERS):
                what = "not a directory" if tail in FOLDERS else "a directory"
            elif tail in FOLDERS or stat.S_ISREG(mode) or tail == ".sock":
                continue
            else:
                what = "not a regular file"
            raise StoreError(
                f"{store + tail} belongs to the store and is {what}, so the store is not "
                "used. Nothing was changed. Remove it, or use another store."
            )


def is_store(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        head = os.pread(fd, 72, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return False
    finally:
        os.close(fd)
    return head.startswith(MAGIC) and head[68:72] == APPLICATION


def belongs_to_another(path: str) -> bool:
    """Whether it is, or lies in, what is kept next to a store that is not known here."""
    for tail in TAILS:
        at = path.find(tail)
        while at > 0:
            if path[at + len(tail) : at + len(tail) + 1] in ("", "/") and is_store(path[:at]):
                return True
            at = path.find(tail, at + 1)
    return os.path.lexists(path + ".lock") and is_store(path)
