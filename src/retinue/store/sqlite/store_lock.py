"""The lock of a store: only one process writes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

from retinue.errors import StoreError, StoreLocked
from retinue.sandbox.store_files import refuse_links

LOCK_BYTES = 32


class Lock:
    """An advisory lock beside the database: it ends with the process, however that ends."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1

    def acquire(self) -> None:
        refuse_links(self.path)
        name = self.path + ".lock"
        while self._fd < 0:
            try:
                fd = os.open(
                    name,
                    os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                    0o600,
                )
            except OSError as error:
                raise StoreError(
                    f"Cannot write {name} ({error.strerror}). Nothing was changed. Use a "
                    "folder that exists and is writable.",
                    path=self.path,
                ) from error
            try:
                if not _is_lock(os.fstat(fd)):
                    raise StoreError(
                        f"{name} exists and is not a lock file of Retinue. Nothing was "
                        "changed. Remove it, or use another store.",
                        path=self.path,
                    )
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may have removed the file in between: then we hold a lock that no
                # one will see.
                if os.fstat(fd).st_ino == os.stat(name).st_ino:
                    self._fd = fd
            except FileNotFoundError:
                pass
            except BlockingIOError as error:
                raise StoreLocked(
                    f"{self.path} is in use by process {_pid(fd)}. Nothing was changed. "
                    "Stop that process, use its host instead of opening the file, or use "
                    "another store.",
                    path=self.path,
                ) from error
            except OSError as error:
                raise StoreError(
                    f"Cannot lock {name} ({error.strerror}). Use another file system.",
                    path=self.path,
                ) from error
            finally:
                if self._fd != fd:
                    os.close(fd)
        with contextlib.suppress(OSError):  # on a full disk the lock holds without a name
            os.ftruncate(self._fd, os.pwrite(self._fd, b"%d\n" % os.getpid(), 0))

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _is_lock(info: os.stat_result) -> bool:
    """A number is written into it: another file, or another name of one, must not be lost by
    that."""
    return stat.S_ISREG(info.st_mode) and info.st_nlink < 2 and info.st_size <= LOCK_BYTES


def _pid(fd: int) -> str:
    return os.pread(fd, LOCK_BYTES, 0).decode("ascii", "replace").strip() or "unknown"
