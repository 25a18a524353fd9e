"""Errors of this machine, not of the provider: no descriptors, memory, disk, ports or network. It
says nothing of a provider, so no one counts it as the provider's failure. Of descriptors is known
beforehand how many there are."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys

if sys.platform != "win32":
    import resource

KIND = "machine"
OURS: set[int | None] = {
    getattr(errno, name)
    for name in (
        "EMFILE",
        "ENFILE",
        "ENOMEM",
        "ENOBUFS",
        "ENOSPC",
        "EDQUOT",
        "EAGAIN",
        "EBUSY",  # names cannot be looked up without descriptors
        "EINVAL",  # nor can they then, on some machines; no other machine answers with it
        "EACCES",
        "EPERM",
        "EADDRNOTAVAIL",
        "EAFNOSUPPORT",
        "ENETDOWN",
        "ENETUNREACH",
        "EHOSTUNREACH",
    )
    if hasattr(errno, name)
}


RAISED_TO = 65_536
"""The limit of open files is raised to the hard one, but no further than this: children inherit it,
and some programs look at every number below it."""
FALLBACK = 10_240
"""What macOS takes where it says that there is no limit."""
LEAST_RESERVE = 64
LOOKUP_DESCRIPTORS = 8
"""To look a name up, the resolver reads files of its own and opens sockets."""


class Descriptors:
    """The open files of this process. `calls` of them belong to calls of models, of all governors
    together."""

    def __init__(self) -> None:
        self.calls = 0
        self._room = 0
        self._is_raised = False

    @property
    def limit(self) -> int:
        """So many files this process may have open now."""
        if sys.platform == "win32":
            return RAISED_TO
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return RAISED_TO if soft == resource.RLIM_INFINITY else int(soft)

    @property
    def room(self) -> int:
        """So many calls in parallel: an eighth, 64 at least, is for stores, tools and whatever else
        is open."""
        limit = self.limit
        return max(1, limit - max(LEAST_RESERVE, limit // 8))

    @property
    def is_full(self) -> bool:
        """The limit is looked up once, and again whenever there seems to be no room."""
        if self.calls >= self._room:
            self._room = self.room
        return self.calls >= self._room

    @property
    def words(self) -> str:
        return (
            f"this process may open {self.limit} files (ulimit -n), which allows "
            f"{self.room} calls at a time"
        )

    def raise_limit(self) -> None:
        """The soft limit to the hard one, once."""
        if self._is_raised or sys.platform == "win32":
            return
        self._is_raised = True
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for target in (RAISED_TO, FALLBACK):
            target = target if hard == resource.RLIM_INFINITY else min(target, hard)
            if soft == resource.RLIM_INFINITY or soft >= target:
                return
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            except (OSError, ValueError):
                continue
            return


DESCRIPTORS = Descriptors()
"""Those of this process."""


def trouble(error: BaseException | None) -> str:
    """What this machine lacked, in words; "" when the error is not about this machine."""
    n_causes = 0
    while error is not None and n_causes < 8:
        if isinstance(error, MemoryError):
            return "out of memory"
        if isinstance(error, RuntimeError) and "start new thread" in str(error):
            return "no new thread can be started"
        if isinstance(error, socket.gaierror):
            if error.errno == getattr(socket, "EAI_MEMORY", None):
                return "out of memory"
            # The resolver calls a lack of descriptors a temporary failure of the name service.
            return _words(number) if (number := lookup_shortage()) else ""
        if isinstance(error, OSError) and error.errno in OURS:
            return _words(error.errno or 0)
        error, n_causes = (
            getattr(error, "os_error", None) or error.__cause__ or error.__context__,
            n_causes + 1,
        )
    return ""


def lookup_shortage() -> int:
    """The error number that says why a name cannot be looked up now: a look-up needs several
    descriptors. 0 if there are enough."""
    with contextlib.ExitStack() as probes:
        try:
            for _ in range(LOOKUP_DESCRIPTORS):
                probes.enter_context(socket.socket())
        except OSError as error:
            return error.errno or errno.EMFILE
    return 0


def _words(number: int) -> str:
    return f"{os.strerror(number)} ({errno.errorcode.get(number, number)})"
