"""Writes a file so that readers see the old content or the new, also after a power failure: to a
draft next to it, flushed, then renamed over it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from retinue.errors import Refused
from retinue.sandbox.open_beneath import sync_folder

if TYPE_CHECKING:  # commands that start fast write files too, and see no workspace
    from retinue.sandbox.file_location import FileLocation

SUFFIX = ".retinue-draft"
N_LOCKS = 64
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_LOCKS = tuple(threading.Lock() for _ in range(N_LOCKS))


def write_file(
    path: str | os.PathLike[str],
    data: bytes,
    mode: int = 0o600,
    *,
    durable: bool = True,
    drafts: str = "",
    dir_fd: int | None = None,
) -> None:
    """Replace a file of ours in one step: when that fails, the old one is still there and nothing
    else is. A link in its place is replaced, not followed. `durable` outlives a loss of power;
    `drafts` is a folder of the same file system for what is half written."""
    path = os.fspath(path)
    folder = os.path.dirname(path)
    draft = os.path.join(drafts or folder, f".{os.urandom(8).hex()}{SUFFIX}")
    fd = os.open(draft, NEW, 0o600, dir_fd=dir_fd)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(fd, mode)
            if durable:
                os.fsync(fd)
        os.rename(draft, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=dir_fd)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = path
        raise
    if durable:
        sync_folder(folder, dir_fd=dir_fd)


@contextlib.contextmanager
def alone(spots: list[FileLocation]) -> Iterator[None]:
    """No one else in this process changes these files meanwhile: several edits of one file in one
    turn all count."""
    numbers = set()
    for spot in spots:
        where = os.fstat(spot.dir_fd)
        numbers.add(hash((where.st_dev, where.st_ino, spot.name)) % N_LOCKS)
    with contextlib.ExitStack() as locks:
        for number in sorted(numbers):
            locks.enter_context(_LOCKS[number])
        yield


class PendingWrite:
    """The next content of a file, written and flushed beside it. `tag` names the call, so that a
    later process can find what it left behind."""

    def __init__(
        self, spot: FileLocation, data: bytes, tag: str = "", like: os.stat_result | None = None
    ) -> None:
        self.spot = spot
        self.name = f".{prefix(tag)}{os.urandom(8).hex()}{SUFFIX}"
        spot.check()
        try:
            fd = os.open(self.name, NEW, 0o600, dir_fd=spot.dir_fd)
        except OSError as error:
            raise _unwritten(spot, error) from None
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                _dress(fd, spot.stat or like)
                os.fsync(fd)
        except BaseException as error:
            self.discard()
            raise _unwritten(spot, error) if isinstance(error, OSError) else error from None

    def commit(self) -> None:
        """Put it in the file's place, which must be as it was when it was looked at."""
        spot = self.spot
        spot.check()
        now = _identity(spot)
        if now != _of(spot.stat):
            self.discard()
            raise Refused(
                "changed",
                f"{spot.path}: changed by another process just now. Nothing was written",
            )
        try:
            if spot.stat is None:
                self._appear()
            else:
                os.rename(self.name, spot.name, src_dir_fd=spot.dir_fd, dst_dir_fd=spot.dir_fd)
            os.fsync(spot.dir_fd)
        except OSError as error:
            self.discard()
            raise _unwritten(spot, error) from None

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.name, dir_fd=self.spot.dir_fd)

    def _appear(self) -> None:
        """A new file never takes the place of one that has appeared meanwhile, where the file
        system has hard links."""
        dir_fd = self.spot.dir_fd
        try:
            os.link(
                self.name,
                self.spot.name,
                src_dir_fd=dir_fd,
                dst_dir_fd=dir_fd,
                follow_symlinks=False,
            )
        except FileExistsError:
            raise
        except OSError:
            os.rename(self.name, self.spot.name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        else:
            self.discard()


def remove(spot: FileLocation) -> None:
    """Take the file away; it must be the one that was looked at."""
    spot.check()
    if _identity(spot) != _of(spot.stat):
        raise Refused(
            "changed", f"{spot.path}: changed by another process just now. It was not removed"
        )
    try:
        os.unlink(spot.name, dir_fd=spot.dir_fd)
        os.fsync(spot.dir_fd)
    except OSError as error:
        raise _unwritten(spot, error) from None


def sweep(spot: FileLocation, tag: str) -> None:
    """Remove the drafts that an earlier process left beside the file in the same call."""
    start = "." + prefix(tag)
    with contextlib.suppress(OSError), os.scandir(spot.dir_fd) as entries:
        for name in [
            e.name for e in entries if e.name.startswith(start) and e.name.endswith(SUFFIX)
        ]:
            os.unlink(name, dir_fd=spot.dir_fd)


def prefix(tag: str) -> str:
    return f"{hashlib.sha256(tag.encode('utf-8', 'replace')).hexdigest()[:16]}-" if tag else ""


def _dress(fd: int, old: os.stat_result | None) -> None:
    """The mode and, where we may, the owner of the old file; for a new one what the umask
    leaves."""
    if old is None:
        os.fchmod(fd, 0o666 & ~umask())
        return
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)


def umask() -> int:
    """Without setting it, which would be seen by every thread for a moment."""
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o077


def _identity(spot: FileLocation) -> tuple[int, ...] | None:
    try:
        return _of(os.stat(spot.name, dir_fd=spot.dir_fd, follow_symlinks=False))
    except OSError:
        return None


def _of(info: os.stat_result | None) -> tuple[int, ...] | None:
    if info is None:
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _unwritten(spot: FileLocation, error: OSError) -> Refused:
    if error.errno == errno.EEXIST:
        return Refused(
            "changed", f"{spot.path}: created by another process just now. Nothing was written"
        )
    return Refused(
        "write",
        f"{spot.path}: cannot be written ({error.strerror}). Its content was not changed",
    )
