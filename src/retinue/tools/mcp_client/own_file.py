"""A JSON file that only its owner can change (0600). Each change is made under a lock on what the
file says by then, and replaces it whole: no process undoes another's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from retinue.errors import ConfigError
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.open_beneath import make_folder
from retinue.sandbox.regular_file import lock, open_regular

VERSION = 1
MAX_FILE = 32 << 20


class FileContent(msgspec.Struct, forbid_unknown_fields=True):
    """What such a file has at least."""

    version: int = VERSION


Content = TypeVar("Content", bound=FileContent)


class OwnFile(Generic[Content]):
    """Without `path` it lasts as long as this object. `what` names what is in it, and `again` says
    how to get it anew when the file is damaged."""

    def __init__(self, path: Path | None, kind: type[Content], what: str, again: str) -> None:
        self.path, self._kind = path, kind
        self._what, self._again = what, again
        self._content = kind()
        self._stamp: tuple[int, int, int] | None = None

    def read(self) -> Content:
        """What the file says now. One that cannot be read is not written over."""
        if self.path is None:
            return self._content
        try:
            fd = open_regular(self.path)
        except FileNotFoundError:
            self._content, self._stamp = self._kind(), None
            return self._content
        except OSError as error:
            raise ConfigError(
                f"Cannot read the {self._what} in {self.path}: {error.strerror}"
            ) from None
        with os.fdopen(fd, "rb") as file:
            about = os.fstat(fd)
            if about.st_uid != os.geteuid() or about.st_mode & 0o022:
                raise ConfigError(
                    f"{self.path} is writable by other users, so its {self._what} are "
                    f"ignored. Check it, then run `chmod 600 {self.path}`."
                )
            stamp = (about.st_ino, about.st_mtime_ns, about.st_size)
            if stamp == self._stamp:
                return self._content
            data = file.read(MAX_FILE)
        self._content, self._stamp = self._decoded(data), stamp
        return self._content

    def _decoded(self, data: bytes) -> Content:
        try:
            content = msgspec.json.decode(data, type=self._kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(
                f"The {self._what} in {self.path} are damaged ({error}). The file was not "
                f"changed. Move it away, then {self._again}."
            ) from None
        if content.version != VERSION:
            raise ConfigError(
                f"The {self._what} in {self.path} were written by another version "
                f"({content.version})."
            )
        return content

    @contextlib.contextmanager
    def changing(self) -> Iterator[Content]:
        """What the file says, to be changed in place."""
        if self.path is None:
            yield self._content
            return
        make_folder(str(self.path.parent))
        fd = os.open(
            self.path.with_name(f".{self.path.name}.lock"),
            os.O_CREAT | os.O_RDWR | os.O_CLOEXEC,
            0o600,
        )
        try:
            lock(fd)
            yield self.read()
            write_file(self.path, msgspec.json.encode(self._content, order="sorted"))
            about = self.path.stat()
            self._stamp = (about.st_ino, about.st_mtime_ns, about.st_size)
        except BaseException:
            self._stamp = None  # what was changed in memory only is read again
            raise
        finally:
            os.close(fd)
