"""Artifacts in files next to the database, named by their hash: written once, never changed, whole
or missing. A file is deleted when no row names it; one that was put and waits for the commit that
names it is left alone."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Container, Iterable, Iterator
from hashlib import sha256
from itertools import count
from threading import Lock

from retinue.core.values import Artifact
from retinue.errors import NotFound, StoreCorrupt, StoreError, StoreFull
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.open_beneath import make_folder, sync_folder
from retinue.sandbox.regular_file import open_regular

SAFE_SECONDS = 3_600.0
"""How long a file that no row names is left alone when no one knows where it came from."""

MANY = 500
"""From so many names on all files are listed once, instead of asking for each: a list of packages
has thousands."""

_NAME = re.compile(r"[0-9a-f]{64}")
_LONG = re.compile(rb"[0-9a-f]{64,}")
_ENDS = 16
_DIGITS = bytes(0 if chr(n) in "0123456789abcdef" else 1 for n in range(256))
_HASH = bytes(64)
_numbers = count()


def names_in(body: bytes) -> set[str]:
    """What may be the name of an artifact in a text. A search for a pattern would take ten times as
    long, and nearly all texts have none."""
    if _HASH not in body.translate(_DIGITS):
        return set()
    names: set[str] = set()
    for match in _LONG.finditer(body):
        text = match[0].decode()
        # A digit before it may belong to an escape (as in \b); of a long dump only the ends are
        # looked at.
        n = len(text) - 63
        starts = range(n) if n <= 2 * _ENDS else (*range(_ENDS), *range(n - _ENDS, n))
        names.update(text[start : start + 64] for start in starts)
    return names


def is_artifact_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


class Artifacts:
    """`<folder>/ab/<sha256>`; what is being written is in `<folder>/new` until it is durable."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._waiting: set[str] = set()
        self._late: list[str] = []
        self._n_copies = 0
        self._are_there = False
        self._lock = Lock()

    def sweep(self) -> None:
        """Remove what a crash left half written. Only for the process that holds the lock."""
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(os.path.join(self.folder, "new"))):
                os.unlink(entry.path)

    def put(self, data: bytes) -> Artifact:
        name = sha256(data).hexdigest()
        path = self._path(name)
        with self._lock:
            self._waiting.add(name)
        try:
            if _has_size(path, len(data)):
                os.utime(path)
                sync_folder(os.path.dirname(path))
            else:
                self._write(path, data)
        except OSError as error:
            text = (
                f"Cannot write an artifact of {len(data)} bytes below {self.folder} "
                f"({error.strerror})."
            )
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
                raise StoreFull(
                    f"{text} Nothing was saved. Free some space, then try again."
                ) from error
            raise StoreError(
                f"{text} Nothing was saved. Check the folder and its file permissions."
            ) from error
        return Artifact(path=name, size=len(data), sha256=name)

    def get(self, name: str, offset: int, limit: int | None) -> bytes:
        if not is_artifact_name(name):
            raise NotFound(f"{name!r} is not an artifact id. An id has 64 hexadecimal digits.")
        try:
            with open(open_regular(self._path(name)), "rb") as file:
                file.seek(max(0, offset))
                data = file.read(-1 if limit is None else max(0, limit))
        except FileNotFoundError:
            raise NotFound(f"Artifact {name} not found.", "artifact", name) from None
        except OSError as error:
            raise StoreError(
                f"Cannot read artifact {name} ({error.strerror}). The file was not changed."
            ) from error
        if offset <= 0 and limit is None and sha256(data).hexdigest() != name:
            raise StoreCorrupt(
                f"Artifact {name} does not match its hash. The file was not changed. "
                "Restore it from a backup."
            )
        return data

    def are_there(self) -> bool:
        """Whether there have ever been any."""
        if not self._are_there:
            self._are_there = bool(self._waiting) or os.path.isdir(self.folder)
        return self._are_there

    def present(self, names: set[str]) -> set[str]:
        """Those of these names that there is an artifact for."""
        if len(names) > MANY:
            return names.intersection(self.names())
        return {name for name in names if os.path.exists(self._path(name))}

    def named(self, names: Iterable[str]) -> None:
        """A commit that names these has succeeded."""
        with self._lock:
            self._waiting.difference_update(names)

    def collect(self, names: Iterable[str]) -> int:
        """Delete what no row names; returns how many bytes that were."""
        freed = 0
        for name in names:
            path = self._path(name)
            with self._lock, contextlib.suppress(OSError):
                if self._n_copies:
                    self._late.append(name)
                elif name not in self._waiting:
                    size = os.stat(path).st_size
                    os.unlink(path)
                    freed += size
        return freed

    @contextlib.contextmanager
    def keep_while_copying(self) -> Iterator[None]:
        """While a copy is made, what its database names is not deleted."""
        with self._lock:
            self._n_copies += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_copies -= 1
                late = [] if self._n_copies else self._late
                self._late = self._late if self._n_copies else []
            self.collect(late)

    def unnamed(self, named: Container[str]) -> Iterator[str]:
        """What is there, is not named, and has been there for a while: left by a crash."""
        before = time.time() - SAFE_SECONDS
        for name in self.names():
            with contextlib.suppress(OSError):
                if name not in named and os.stat(self._path(name)).st_mtime < before:
                    yield name

    def size(self) -> int:
        """Bytes of all of them."""
        total = 0
        for name in self.names():
            with contextlib.suppress(OSError):
                total += os.stat(self._path(name)).st_size
        return total

    def copy(self, folder: str) -> None:
        """Everything into another folder; as links where the file system has them, since nothing
        here ever changes."""
        target = Artifacts(folder)
        try:
            for name in self.names():
                path = target._path(name)
                if os.path.exists(path):
                    continue
                make_folder(os.path.dirname(path))
                try:
                    os.link(self._path(name), path)
                except OSError:  # another file system, or one without links
                    target.put(self.get(name, 0, None))
                else:
                    sync_folder(os.path.dirname(path))
        except OSError as error:
            raise StoreError(
                f"Cannot copy the artifacts to {folder} ({error.strerror})."
            ) from error

    def names(self) -> Iterator[str]:
        if os.path.isdir(self.folder):
            for part in sorted(os.listdir(self.folder)):
                yield from filter(
                    _NAME.fullmatch, sorted(os.listdir(os.path.join(self.folder, part)))
                )

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name[:2], name)

    def _write(self, path: str, data: bytes) -> None:
        new = os.path.join(self.folder, "new")
        make_folder(new)
        make_folder(os.path.dirname(path))
        write_file(path, data, drafts=new)


def _has_size(path: str, size: int) -> bool:
    try:
        return os.stat(path).st_size == size
    except FileNotFoundError:
        return False
