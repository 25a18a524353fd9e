"""Translates SQLite's errors: what was wrong, what was kept, and what to do next."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from retinue.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked

UNREADABLE = {
    apsw.SQLITE_IOERR_READ,
    apsw.SQLITE_IOERR_SHORT_READ,
    apsw.SQLITE_IOERR_CORRUPTFS,
    apsw.SQLITE_IOERR_DATA,
}


def extended(error: apsw.Error) -> int:
    """SQLite's exact code; the stubs do not know that every error carries it."""
    return int(getattr(error, "extendedresult", 0))


def is_damage(error: BaseException) -> bool:
    """The file is not what was written: trying again cannot help."""
    if isinstance(error, apsw.IOError):
        return extended(error) in UNREADABLE
    return isinstance(error, (apsw.CorruptError, apsw.NotADBError)) or is_undecoded(error)


def is_undecoded(error: BaseException) -> bool:
    """Whether a row is not the JSON that was written. (Who has not imported the decoder has not
    used it, and a quick listing need not.)"""
    decoder = sys.modules.get("msgspec")
    return decoder is not None and isinstance(error, decoder.DecodeError)


def damaged(path: str, error: BaseException) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} is damaged ({error}). The file was not changed. Restore a backup, or "
        "recover what is readable into a new file. If it is a copy, copy it again with "
        "its -wal file, or use `retinue backup`.",
        path=path,
    )


def commit_error(error: Exception, path: str) -> StoreError:
    """The typed error for a batch that could not be written."""
    if is_damage(error):
        return damaged(path, error)
    if isinstance(error, apsw.ReadOnlyError) and extended(error) == apsw.SQLITE_READONLY_DBMOVED:
        return moved(path)
    if isinstance(error, (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError)):
        return StoreFull(
            f"Cannot write to {path} ({error}). This batch is not saved yet; earlier data "
            "is safe. Free some space or make the file writable, then retry.",
            path=path,
        )
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return busy(path)
    return StoreError(
        f"{path} rejected a batch ({error!r}). This batch was not saved; earlier data is safe.",
        path=path,
    )


def open_error(error: Exception, path: str) -> StoreError:
    """The typed error for a file that could not be taken over."""
    if is_damage(error):
        return damaged(path, error)
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return busy(path)
    if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError) and _is_full(path)):
        return StoreFull(
            f"Cannot open {path}: no space left. Nothing was lost. Free some space and try again.",
            path=path,
        )
    return StoreError(
        f"Cannot open {path} for writing ({error}). Nothing was changed. Check its folder "
        "and file permissions.",
        path=path,
    )


def _is_full(path: str) -> bool:
    """Whether there is next to no space. SQLite does not always say so: its shared memory fails
    like a broken disk."""
    try:
        disk = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < 1 << 16


def moved(path: str) -> StoreError:
    return StoreError(
        f"{path} was moved, deleted or replaced while it was in use. This batch was not "
        "saved. Put the file and its -wal file back, or use another store.",
        path=path,
    )


def cut_off(path: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} or its -wal file was truncated while it was in use: it is shorter than "
        "what was written. This batch was not saved, and nothing more is written. Put "
        "the files back, or restore a backup.",
        path=path,
    )


def busy(path: str) -> StoreLocked:
    return StoreLocked(
        f"{path} was locked by {holder(path)} for too long. Nothing was changed. Wait for "
        "that process or stop it, then try again.",
        path=path,
    )


def holder(path: str) -> str:
    """Who holds a write lock on the file or its -shm. Read from the kernel's list: opening and
    closing either of them here would drop the locks that SQLite itself holds in this process."""
    inodes = set()
    for name in (path, path + "-shm"):
        try:
            inodes.add(str(os.stat(name).st_ino))
        except OSError:
            continue
    try:
        with open("/proc/locks", encoding="ascii") as file:
            locks = [line.split() for line in file]
    except OSError:
        locks = []
    for fields in locks:
        # 12: POSIX ADVISORY WRITE 4711 08:01:131073 120 120
        if "->" not in fields and "WRITE" in fields and len(fields) >= 8:
            pid, inode = fields[4], fields[5].rpartition(":")[2]
            if inode in inodes and pid != str(os.getpid()):
                return f"process {pid}"
    return "another process"


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Translate what goes wrong while rows are read."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, apsw.Error) and not is_undecoded(error):
            raise
        if is_damage(error):
            raise damaged(path, error) from error
        if isinstance(error, (apsw.BusyError, apsw.LockedError)):
            raise busy(path) from error
        raise StoreError(
            f"Cannot read {path} ({error}). Nothing was changed.", path=path
        ) from error
