"""Opens a path under an open directory so that neither `..` nor a symlink leads out, whatever
another process renames meanwhile. The kernel does it (`openat2`), or, where it cannot, a walk that
keeps each directory open."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Callable
from functools import lru_cache

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
SYS_OPENAT2 = 437  # the same number on every architecture that got it after the tables were unified
MACHINES = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x")
MAX_LINKS = 40
RETRIES = 64

DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def open_beneath(
    root_fd: int, path: str | bytes, flags: int, mode: int = 0, *, links: bool = True
) -> int:
    """A descriptor for `path`, which is relative to `root_fd`. What leads out of it gives EXDEV
    (EACCES is left for permissions); links inside are followed unless `flags` has O_NOFOLLOW.
    Without `links` any link on the way gives ELOOP: for paths that are known to have none, unless
    someone has put one there."""
    opened = kernel_open()
    if opened is None:
        return walk_open(root_fd, path, flags, mode, links=links)
    for _ in range(RETRIES):
        try:
            return opened(root_fd, path, flags, mode, links)
        except OSError as error:
            # A rename anywhere on the machine makes the kernel unsure about `..`; it asks to be
            # asked again.
            if error.errno not in (errno.EAGAIN, errno.EINTR):
                raise
    return walk_open(root_fd, path, flags, mode, links=links)


def open_real(path: str) -> int:
    """A directory by its real path: no link on the way is followed."""
    top = os.open("/", DIRECTORY)
    try:
        return open_beneath(top, path.lstrip("/") or ".", DIRECTORY, links=False)
    finally:
        os.close(top)


def make_beneath(top: int, path: str, mode: int = 0o777, *, durable: bool = False) -> int:
    """A directory below an open one, made where it is missing: from one open directory to the next,
    none of them reached by a link. `durable`: those that are made outlive a loss of power."""
    fd = os.dup(top)
    try:
        for part in (p for p in path.split("/") if p not in ("", ".")):
            try:
                below = os.open(part, DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, mode, dir_fd=fd)
                below = os.open(part, DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                if durable:
                    sync_folder(".", dir_fd=fd)
            os.close(fd)
            fd = below
    except BaseException:
        os.close(fd)
        raise
    return fd


def make_real(path: str, mode: int = 0o777, *, durable: bool = False) -> int:
    """The same by a real path."""
    top = os.open("/", DIRECTORY)
    try:
        return make_beneath(top, path, mode, durable=durable)
    finally:
        os.close(top)


def make_folder(path: str) -> None:
    """A folder of ours and those above it that are missing, durable and for their owner alone. One
    that is there is not changed."""
    if os.path.isdir(path):
        return
    try:
        os.close(make_real(os.path.realpath(path), 0o700, durable=True))
    except OSError as error:
        error.filename = path  # not the name in an open folder by which it was given
        raise


def sync_folder(folder: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """The names in a folder outlive a loss of power."""
    fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@lru_cache(maxsize=1)
def kernel_open() -> Callable[[int, str | bytes, int, int, bool], int] | None:
    """`openat2` with the wanted resolution, or None where the kernel (or a filter in front of it)
    has none."""
    if os.uname().machine not in MACHINES:
        return None
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (
            ("flags", ctypes.c_uint64),
            ("mode", ctypes.c_uint64),
            ("resolve", ctypes.c_uint64),
        )

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    size = ctypes.sizeof(OpenHow)

    def opened(
        root_fd: int, path: str | bytes, flags: int, mode: int = 0, links: bool = True
    ) -> int:
        name = os.fsencode(path)
        if b"\0" in name:
            raise ValueError("embedded null byte")
        resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if links else RESOLVE_NO_SYMLINKS)
        how = OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, resolve)
        fd = syscall(
            ctypes.c_long(SYS_OPENAT2),
            ctypes.c_int(root_fd),
            ctypes.c_char_p(name),
            ctypes.byref(how),
            ctypes.c_size_t(size),
        )
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fsdecode(name))
        return int(fd)

    probe = os.open("/", DIRECTORY)
    try:
        os.close(opened(probe, ".", DIRECTORY))
    except OSError:
        return None
    finally:
        os.close(probe)
    return opened


def walk_open(
    root_fd: int, path: str | bytes, flags: int, mode: int = 0, *, links: bool = True
) -> int:
    """The same, one component at a time: each directory on the way is held open and no link is
    followed by the kernel, so a directory that is moved or replaced meanwhile cannot lead
    elsewhere."""
    name = os.fsdecode(path)
    if name.startswith("/"):
        raise _error(errno.EXDEV, name)
    if not name:
        raise _error(errno.ENOENT, name)
    parts = deque(name.split("/"))
    fds = [os.dup(root_fd)]
    n_links = 0
    try:
        while parts:
            part = parts.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                if len(fds) == 1:
                    raise _error(errno.EXDEV, name)
                os.close(fds.pop())
                continue
            is_last = not any(p not in ("", ".") for p in parts)
            target = _link(part, fds[-1])
            if target is not None and not (is_last and not parts and flags & os.O_NOFOLLOW):
                n_links += 1
                if n_links > MAX_LINKS or not links:
                    raise _error(errno.ELOOP, name)
                if target.startswith("/"):
                    raise _error(errno.EXDEV, name)
                parts.extendleft(reversed(target.split("/")))
            elif is_last:
                return _last(part, flags | (os.O_DIRECTORY if parts else 0), mode, fds[-1])
            else:
                fds.append(os.open(part, DIRECTORY | os.O_NOFOLLOW, dir_fd=fds[-1]))
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=fds[-1])
    finally:
        for fd in fds:
            os.close(fd)


def _last(part: str, flags: int, mode: int, dir_fd: int) -> int:
    fd = os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=dir_fd)
    # With O_PATH a link that has just been put there is opened itself, which only O_NOFOLLOW asks
    # for.
    if flags & os.O_PATH and not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise _error(errno.ELOOP, part)
    return fd


def _link(part: str, dir_fd: int) -> str | None:
    try:
        return os.readlink(part, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)
