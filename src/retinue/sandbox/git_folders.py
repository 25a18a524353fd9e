"""Folders for git directories of Retinue, in the machine's temporary directory and not in TMPDIR,
because commands can write there, and git's settings choose what git runs. Who has made one holds a
file in it locked: so the next who starts knows which were left behind by a process that was killed,
and takes away those alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import stat
import tempfile

from retinue.sandbox import folder_operations as folders

PREFIX = "retinue-git-"
LOCK = "held"
NAME = re.compile(re.escape(PREFIX) + r"\d+-\w+")
PLACES = ("/tmp", "/var/tmp")
"""Never given to a command whole, nor what others have made in them."""


def _place() -> str:
    return next(
        (p for p in PLACES if os.path.isdir(p) and os.access(p, os.W_OK | os.X_OK)),
        tempfile.gettempdir(),
    )


def make() -> tuple[str, int]:
    """A new one, and the descriptor to hold for as long as it is used."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=_place()))
    try:
        lock = os.open(
            f"{folder}/{LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(
            f"{folder}/{LOCK}.new", f"{folder}/{LOCK}"
        )  # it is never seen unlocked while we live
    except BaseException:
        folders.remove(folder)
        raise
    return folder, lock


def sweep() -> None:
    """Take away those of processes that are gone. (Blocks; not for the loop.)"""
    with contextlib.suppress(OSError), os.scandir(_place()) as entries:
        for path in [entry.path for entry in entries if NAME.fullmatch(entry.name)]:
            with contextlib.suppress(OSError):
                if _is_left(path):
                    _end_users(path)
                    folders.remove(path)


def _is_left(path: str) -> bool:
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        return False
    lock = os.open(f"{path}/{LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(lock)


def _end_users(path: str) -> None:
    """A sandbox of a git that was given this folder can be left over too, when its host was killed
    as it began."""
    target = os.fsencode(os.path.realpath(path))
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.geteuid():
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                if os.path.basename(words[0]) == b"bwrap" and target in words:
                    os.kill(int(name), signal.SIGKILL)
