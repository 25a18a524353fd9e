"""Keeps what a command created at a protected name: outside of the tree, whole, and never
deleted."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from retinue.sandbox import folder_operations as folders

MOST_BYTES, MOST_FILES = 64 << 20, 10_000
"""What is copied to another file system; beyond that it stays in the tree, under a name that means
nothing."""


@dataclass(frozen=True, slots=True)
class KeptAside:
    """`folder` is private to the runtime ("" for none: things are only renamed where they are);
    `name` is in the names of what one command has made."""

    folder: str
    name: str

    def take(self, root_fd: int, path: str, root: str) -> str:
        """Move what is at `path` beneath an open directory; where it is now, or "" when there is
        nothing."""
        from retinue.sandbox.open_beneath import open_beneath

        above, name = os.path.split(path)
        try:
            dir_fd = open_beneath(
                root_fd, above or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            )
        except OSError:
            return ""
        try:
            os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            return self._into_folder(dir_fd, name, f"{root}/{path}") or self._renamed(
                dir_fd, name, root, above
            )
        except FileNotFoundError:
            return ""
        finally:
            os.close(dir_fd)

    def _into_folder(self, dir_fd: int, name: str, path: str) -> str:
        if not self.folder:
            return ""
        try:
            place = self._place()
            (place / "from").write_text(path, encoding="utf-8", errors="surrogateescape")
            target = str(place / "it")
            try:
                os.rename(name, target, src_dir_fd=dir_fd)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _carry(dir_fd, name, target)
        except OSError:
            return ""
        return target

    def _place(self) -> Path:
        os.makedirs(self.folder, 0o700, exist_ok=True)
        for n in count(1):
            place = Path(self.folder, f"{self.name}-{n}")
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)
                return place
        raise AssertionError

    def _renamed(self, dir_fd: int, name: str, root: str, above: str) -> str:
        new = f"{name}.refused-{os.urandom(4).hex()}"
        os.rename(name, new, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        return os.path.normpath(f"{root}/{above}/{new}")


def _carry(dir_fd: int, name: str, target: str) -> None:
    """To another file system: out of the way first, then copied, then removed, in that order."""
    hidden = f"{name}.refused-{os.urandom(4).hex()}"
    os.rename(name, hidden, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    try:
        folders.copy(dir_fd, hidden, target, most_bytes=MOST_BYTES, most_files=MOST_FILES)
    except OSError as error:
        folders.remove(target)
        os.rename(hidden, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        raise OSError(errno.EIO, str(error)) from None
    folders.remove(hidden, dir_fd=dir_fd)


def mark_reported(saved_path: str) -> None:
    """A user has seen it. (Until then, the next start reports it.)"""
    with contextlib.suppress(OSError):
        if os.path.basename(saved_path) == "it":
            Path(saved_path).with_name("told").touch()


def unreported(folder: Path) -> list[tuple[str, str]]:
    """What was taken away when no one was there to tell it: where from, and where it is. Asked
    once."""
    losses = []
    with contextlib.suppress(OSError):
        for place in sorted(folder.iterdir()):
            if (place / "from").exists() and not (place / "told").exists():
                (place / "told").touch()
                losses.append(
                    ((place / "from").read_text(errors="surrogateescape"), str(place / "it"))
                )
    return losses
