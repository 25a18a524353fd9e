"""The location of a file to be written: its directory, held open, and the links on the way, which
stay under the root."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from retinue.errors import NotFound, Refused
from retinue.sandbox.open_beneath import open_beneath
from retinue.sandbox.path_checks import MAX_FILE, READ, drain, outside, regular, strip
from retinue.sandbox.paths import Root, real_path
from retinue.sandbox.protected_paths import protected

MAX_HOPS = 8


@dataclass(slots=True)
class FileLocation:
    """The place of one file: its directory, held open, its name, and what is there now (None:
    nothing).

    A symbolic link at the name has been followed, inside the root, before: writing replaces the
    file that it leads to."""

    root: Root
    dir_fd: int
    name: str
    path: str
    stat: os.stat_result | None
    created: list[tuple[int, str]] = field(default_factory=list)

    def close(self) -> None:
        os.close(self.dir_fd)
        for fd, _ in self.created:
            os.close(fd)
        self.created.clear()

    def undo(self) -> None:
        """Take away the directories that were made for it, as far as they are empty."""
        for fd, name in reversed(self.created):
            try:
                os.rmdir(name, dir_fd=fd)
            except OSError:
                return

    def check(self) -> None:
        """Refuse what is protected or no longer beneath the root: asked when the spot is found and
        when it is used."""
        top, here = self.root.real, real_path(self.dir_fd)
        if here != top and not here.startswith(top.rstrip("/") + "/"):
            raise Refused(
                "path", f"{self.path}: its directory was moved out of the root. Nothing was written"
            )
        why = protected(f"{here.rstrip('/')}/{self.name}", top)
        self.root.permit(f"{here.rstrip('/')}/{self.name}", self.path)
        if why:
            raise Refused(
                "protected",
                f"{self.path} cannot be changed: {why}. Ask the user to do it by hand.",
            )

    def where(self) -> str:
        """The whole path of the file, by where its directory is now."""
        return self.root.named(f"{real_path(self.dir_fd).rstrip('/')}/{self.name}", self.path)

    def refresh(self) -> bool:
        """See anew whether there is a file; what is there and is none is refused."""
        self.stat = _lstat(self.name, self.dir_fd)
        if self.stat is not None:
            regular(self.stat, self.path, MAX_FILE)
        return self.stat is not None

    def read(self) -> bytes:
        """What the file holds now; it is the file that `found` describes."""
        try:
            fd = os.open(self.name, READ | os.O_NOFOLLOW, dir_fd=self.dir_fd)
        except OSError as error:
            raise Refused("path", f"{self.path}: {error.strerror}") from None
        try:
            self.stat = os.fstat(fd)
            regular(self.stat, self.path, MAX_FILE)
            self.root.refuse_link(self.stat, self.path)
        except BaseException:
            os.close(fd)
            raise
        return drain(fd, self.path)


@contextmanager
def spot(root: Root, path: str, *, make: bool = False) -> Iterator[FileLocation]:
    """Find the place that `path` names, through links that stay beneath the root; with `make`,
    missing directories are made. They are taken away again when the body fails."""
    location = locate(root, path, make=make)
    try:
        yield location
    except BaseException:
        location.undo()
        raise
    finally:
        location.close()


def locate(root: Root, path: str, *, make: bool = False, plan: bool = False) -> FileLocation:
    """With `plan`, directories that would be made stay missing: the name then leads through
    them."""
    at = path
    for _ in range(MAX_HOPS):
        parent, name = os.path.split(at)
        if name in ("", ".", ".."):
            raise Refused("path", f"{path}: this is a directory, not a file")
        dir_fd, created, name = _directory(root, parent or ".", path, name, make, plan)
        place = FileLocation(
            root=root, dir_fd=dir_fd, name=name, path=path, stat=None, created=created
        )
        try:
            place.check()
            place.stat = _lstat(name, dir_fd)
            if place.stat is None or stat.S_ISREG(place.stat.st_mode):
                return place
            if not stat.S_ISLNK(place.stat.st_mode):
                regular(place.stat, path, MAX_FILE)
            target = os.readlink(name, dir_fd=dir_fd)
            if target.startswith("/"):
                raise outside(path)
            here = strip(real_path(dir_fd), root.real)
            if here is None:
                raise outside(path)
            at = f"{here}/{target}" if here else target
        except OSError as error:
            place.undo()
            place.close()
            raise Refused("path", f"{path}: {error.strerror}") from None
        except BaseException:
            place.undo()
            place.close()
            raise
        place.close()
    raise Refused("path", f"{path}: too many symbolic links")


def _lstat(name: str, dir_fd: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _directory(
    root: Root, parent: str, path: str, name: str, make: bool, plan: bool
) -> tuple[int, list[tuple[int, str]], str]:
    """The directory, open, those that had to be made (each with its parent, open), and the name in
    it."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    missing: list[str] = []
    head = parent
    while True:
        try:
            fd = open_beneath(root.fd, head or ".", flags)
            break
        except FileNotFoundError:
            head, part = os.path.split(head.rstrip("/"))
            if part in ("", ".", ".."):
                raise NotFound(f"{path}: its directory does not exist") from None
            missing.append(part)
        except OSError as error:
            raise root.translated(error, path) from None
    if not missing:
        return fd, [], name
    created: list[tuple[int, str]] = []
    try:
        planned = FileLocation(
            root=root, dir_fd=fd, name="/".join([*reversed(missing), name]), path=path, stat=None
        )
        planned.check()
        if plan and make:
            return fd, [], planned.name
        if not make:
            raise NotFound(f"{path}: its directory does not exist")
        for part in reversed(missing):
            os.mkdir(part, 0o777, dir_fd=fd)
            created.append((fd, part))
            fd = os.open(part, flags | os.O_NOFOLLOW, dir_fd=fd)
    except BaseException as error:
        FileLocation(root=root, dir_fd=fd, name="", path=path, stat=None, created=created).undo()
        for open_fd in {fd, *(d for d, _ in created)}:
            os.close(open_fd)
        if isinstance(error, OSError):
            raise Refused(
                "path", f"{path}: cannot create its directory: {error.strerror}"
            ) from None
        raise
    return fd, created, name
