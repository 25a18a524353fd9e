"""Checks a sandbox before its command begins: whether the mounts are the intended ones. bwrap
mounts by name, and between the moment a name was looked at and the mount, another process may have
put something else there."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Mapping

from retinue.errors import SandboxMissing
from retinue.sandbox.mounts import Mount, replaced

SECONDS = 30.0
PAUSE = 0.0003
STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
NULL = os.makedev(1, 3)


def inspect(pid: int, mounts: Iterable[Mount], opened: Mapping[str, int]) -> None:
    """Wait until bwrap's process has made its mounts and waits at the gate; then compare. It has
    given up its capabilities by then (the last thing before it waits), so nothing is mounted after
    that."""
    if not _stands(pid):
        return  # it has ended, and says why itself
    try:
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SandboxMissing(
            f"the mounts of the sandbox cannot be checked ({error.strerror})",
            "A bwrap with the setuid bit does not allow the check: install it without, where user "
            "namespaces are allowed.",
        ) from None
    outside = {mount.same[0] for mount in mounts}
    with (
        _View(root, has_links=True) as inside,
        _View(os.open("/", os.O_PATH | os.O_CLOEXEC)) as here,
    ):
        for mount in mounts:
            _compare(mount, inside.open(mount.path), outside)
            # Had it been renamed before it was mounted on, it would show by its other name too.
            _same(mount.path, here.open(mount.path), mount.same)
        for path, fd in opened.items():
            _same(path, inside.open(path), _number(fd))


def _stands(pid: int) -> bool:
    until = time.monotonic() + SECONDS
    while True:
        try:
            with open(f"/proc/{pid}/status", "rb") as file:
                text = file.read()
        except (FileNotFoundError, ProcessLookupError):
            return False
        capabilities = text.partition(b"\nCapEff:")[2][:20].strip().split(b"\n")[0]
        if capabilities and not int(capabilities, 16):
            return True
        if time.monotonic() > until:
            raise SandboxMissing(f"the sandbox was not ready after {SECONDS:g} s", "Try again.")
        time.sleep(PAUSE)


class _View:
    """Opens paths in a root, one name at a time, so that no link is followed; with `has_links`,
    those are that the root of a sandbox itself has, which were made with it (`/var/tmp`, for
    one)."""

    def __init__(self, root: int, *, has_links: bool = False) -> None:
        self._held: dict[str, int] = {"": root}
        self._own = os.fstat(root).st_dev if has_links else -1

    def __enter__(self) -> _View:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._held.values():
            with contextlib.suppress(OSError):
                os.close(fd)

    def open(self, path: str) -> int | None:
        """What is at the path, open as long as this is; None for nothing, or something behind a
        link."""
        at = path.rstrip("/")
        if at not in self._held:
            above, name = os.path.split(at)
            fd = self.open(above)
            if fd is None:
                return None
            try:
                self._held[at] = inner_fd = os.open(name, STEP, dir_fd=fd)
            except OSError:
                return None
            about = os.fstat(inner_fd)
            if stat.S_ISLNK(about.st_mode) and about.st_dev == self._own:
                return self.open(os.path.normpath(f"{above}/{os.readlink('', dir_fd=inner_fd)}"))
        return self._held[at]


def _compare(mount: Mount, fd: int | None, outside: set[int]) -> None:
    if not mount.is_mask:
        _same(mount.path, fd, mount.same)
    if fd is None:
        raise replaced(mount.path)
    if mount.is_mask:
        info = os.fstat(fd)
        is_null = stat.S_ISCHR(info.st_mode) and info.st_rdev == NULL
        if not is_null and (info.st_dev in outside or not stat.S_ISDIR(info.st_mode)):
            raise replaced(mount.path)
    if not mount.writable and not os.fstatvfs(fd).f_flag & os.ST_RDONLY:
        raise replaced(mount.path)


def _same(path: str, fd: int | None, number: tuple[int, int]) -> None:
    if fd is None or _number(fd) != number:
        raise replaced(path)


def _number(fd: int) -> tuple[int, int]:
    info = os.fstat(fd)
    return info.st_dev, info.st_ino
