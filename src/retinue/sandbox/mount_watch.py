"""Watches mounted files: a mount on a file ends when a process outside replaces the file, as git
does with its config and editors when they save. The kernel then takes the mount away in the sandbox
too. So the names are watched while a command runs, and when one is another file, the command is
stopped immediately."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from retinue.sandbox.mounts import Mount

CLOSE_WRITE = 0x8
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
OVERFLOW = 0x4000
EVENTS = CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
HEAD = struct.Struct("iIII")
READ = 1 << 16


@dataclass
class MountWatch:
    """`lost` are the paths whose mount has gone, for another thing is there now; `written` those of
    them that someone may have changed since. `fd` can be read when there is something for
    `read_events` (-1: there are no notifications, and only polling is left)."""

    mounts: dict[str, Mount]
    fd: int = -1
    lost: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    _names: dict[tuple[int, str], str] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, mounts: Iterable[Mount]) -> MountWatch:
        """Those that lie in another one: with the others a command sees what it was given, wherever
        that is now."""
        every = {mount.path: mount for mount in mounts}
        inner = {
            path: m for path, m in every.items() if any(above in every for above in _above(path))
        }
        # A runtime removes and makes git's data about worktrees; entries are judged by what they
        # say.
        watching = cls(
            {path: m for path, m in inner.items() if os.path.basename(path) != "worktrees"}
        )
        watching._listen()
        return watching

    def _listen(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        watched: dict[str, int] = {}
        for path in self.mounts if self.fd >= 0 else ():
            above, name = os.path.split(path)
            if above not in watched:
                watched[above] = int(libc.inotify_add_watch(self.fd, os.fsencode(above), EVENTS))
            self._names[watched[above], name] = path
        if -1 in watched.values():  # no more watches for this user: a part would look like all
            self.close()

    def read_events(self) -> bool:
        """Whether a mount was lost, by what the kernel has reported since."""
        while self.fd >= 0:
            try:
                data = os.read(self.fd, READ)
            except OSError:  # nothing more
                break
            at = 0
            while at < len(data):
                head = HEAD.unpack_from(data, at)  # watch, mask, cookie, length of the name
                end = at + HEAD.size + head[3]
                name = os.fsdecode(data[at + HEAD.size : end].rstrip(b"\0"))
                self._take_event(head[0], head[1], name)
                at = end
        return bool(self.lost)

    def _take_event(self, wd: int, mask: int, name: str) -> None:
        if mask & OVERFLOW:
            self.compare()
            self.written |= self.lost
        elif (path := self._names.get((wd, name))) is not None:
            if path in self.lost or (path in self._gone and mask & (CREATE | MOVED_TO)):
                self.written.add(path)
            # As long as it is mounted on, only someone outside can put another file there.
            if mask & (CREATE | MOVED_TO):
                self.lost.add(path)
            elif mask & (DELETE | MOVED_FROM):
                self._gone.add(path)

    def compare(self) -> bool:
        """The same by comparing. What was found only so may have been changed."""
        self.read_events()
        others = {path for path in self.mounts if path not in self.lost and self._is_other(path)}
        self.lost |= others
        self.written |= others
        return bool(self.lost)

    def _is_other(self, path: str) -> bool:
        """Nothing at all is not another thing yet."""
        with suppress(OSError):
            info = os.lstat(path)
            return (info.st_dev, info.st_ino) != self.mounts[path].same
        return False

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _above(path: str) -> Iterable[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path
