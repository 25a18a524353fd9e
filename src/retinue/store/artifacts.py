"""Bytes under their own hash, in files beside the database: written once, never changed, whole or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import count

from retinue.core.values import Artifact
from retinue.errors import NotFound, StoreCorrupt, StoreError, StoreFull

_NAME = re.compile(r"[0-9a-f]{64}")
_numbers = count()


class Artifacts:
    """`<folder>/ab/<sha256>`; what is being written stands in `<folder>/new` until it is durable."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def sweep(self) -> None:
        """Remove what a crash left half written. Only for whoever holds the lock."""
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(os.path.join(self.folder, "new"))):
                os.unlink(entry.path)

    def put(self, data: bytes) -> Artifact:
        name = sha256(data).hexdigest()
        path = self._path(name)
        try:
            if not _has_size(path, len(data)):
                self._write(path, data)
            _sync(os.path.dirname(path))
        except OSError as error:
            text = f"an artifact of {len(data)} bytes could not be written below {self.folder} ({error.strerror})."
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
                raise StoreFull(f"{text} Nothing of it was kept. Free some space, then try again.") from error
            raise StoreError(f"{text} Nothing of it was kept. Check the folder and its rights.") from error
        return Artifact(path=name, bytes=len(data), sha256=name)

    def get(self, name: str, offset: int, limit: int | None) -> bytes:
        if not _NAME.fullmatch(name):
            raise NotFound(f"{name!r} is not the name of an artifact: that is 64 hexadecimal digits")
        try:
            with open(self._path(name), "rb") as file:
                file.seek(max(0, offset))
                data = file.read(-1 if limit is None else max(0, limit))
        except FileNotFoundError:
            raise NotFound(f"there is no artifact {name}") from None
        except OSError as error:
            raise StoreError(f"artifact {name} cannot be read ({error.strerror}). It was left as it is.") from error
        if offset <= 0 and limit is None and sha256(data).hexdigest() != name:
            raise StoreCorrupt(
                f"artifact {name} is not what was written. It was left as it is. Restore it from a backup."
            )
        return data

    def copy(self, folder: str) -> None:
        """Everything into another folder; as links where the file system has them, since nothing here ever changes."""
        target = Artifacts(folder)
        try:
            for name in self._names():
                path = target._path(name)
                if os.path.exists(path):
                    continue
                _make_folder(os.path.dirname(path))
                try:
                    os.link(self._path(name), path)
                except OSError:  # another file system, or one without links
                    target.put(self.get(name, 0, None))
                else:
                    _sync(os.path.dirname(path))
        except OSError as error:
            raise StoreError(f"the artifacts could not be copied to {folder} ({error.strerror}).") from error

    def _names(self) -> Iterator[str]:
        if os.path.isdir(self.folder):
            for part in sorted(os.listdir(self.folder)):
                yield from filter(_NAME.fullmatch, sorted(os.listdir(os.path.join(self.folder, part))))

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name[:2], name)

    def _write(self, path: str, data: bytes) -> None:
        new = os.path.join(self.folder, "new")
        _make_folder(new)
        _make_folder(os.path.dirname(path))
        part = os.path.join(new, f"{os.getpid()}-{next(_numbers)}")
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise


def _has_size(path: str, size: int) -> bool:
    try:
        return os.stat(path).st_size == size
    except FileNotFoundError:
        return False


def _make_folder(path: str) -> None:
    """A folder for its owner alone, durable, as are those above it that had to be made."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    if above:
        _make_folder(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    _sync(above or ".")


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
