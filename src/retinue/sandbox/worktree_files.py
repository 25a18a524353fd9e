"""The files that link a worktree to its repository."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from retinue.errors import Refused, RetinueError
from retinue.sandbox import folder_operations as folders
from retinue.sandbox.directory_walk import walk_folders
from retinue.sandbox.git_copy import MOST_INDEX, Repository
from retinue.sandbox.git_refs import NEW
from retinue.sandbox.git_repository import Git
from retinue.sandbox.open_beneath import open_real
from retinue.sandbox.private_paths import NOTHING
from retinue.sandbox.protected_paths import home_directories
from retinue.sandbox.readonly_paths import beneath
from retinue.sandbox.regular_file import drain, open_regular, read_small


async def refuse_secrets(git: Git, commit: str) -> None:
    """In a copy of a home directory its secrets would be files like any other."""
    top = git.repository.top
    if not any(beneath(home, (top,)) for home in home_directories()):
        return
    for name in (await git.run("ls-tree", "-r", "-z", "--name-only", commit)).split(b"\0"):
        if why := NOTHING.why(f"{top}/{os.fsdecode(name)}"):
            raise Refused(
                "private",
                f"{top} is a home directory or contains one, and {os.fsdecode(name)} is "
                f"in its last commit: {why}. No worktree was created. Remove the "
                "isolation.",
            )


def register(repository: Repository, run: str, path: Path, branch: str, index: str) -> str:
    """What `git worktree add` writes down: where the data of a copy are, and where the copy is.
    From one open directory to the next: a command may be putting links in their places."""
    admin = f"{repository.common}/worktrees/{run}"
    fds = [open_real(repository.common)]
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir("worktrees", dir_fd=fds[0])
        fds.append(os.open("worktrees", folders.LOOK, dir_fd=fds[0]))
        folders.remove(run, dir_fd=fds[1])
        os.mkdir(run, dir_fd=fds[1])
        fds.append(os.open(run, folders.LOOK, dir_fd=fds[1]))
        for name, text in (
            ("gitdir", f"{path}/.git"),
            ("commondir", "../.."),
            ("HEAD", f"ref: {branch}"),
        ):
            _write(name, os.fsencode(f"{text}\n"), fds[2])
        _write("index", read_small(index, MOST_INDEX), fds[2])
        fds.append(open_real(str(path)))
        _write(".git", os.fsencode(f"gitdir: {admin}\n"), fds[3])
    except OSError as error:
        raise RetinueError(
            f"{admin} cannot be created, or a link leads out of the repository "
            f"({error.strerror}). Nothing was done"
        ) from None
    finally:
        for fd in fds:
            os.close(fd)
    return admin


def forget(admin: str) -> None:
    """Git's data about a copy goes; what is in its place behind a link stays."""
    with contextlib.suppress(OSError):
        fd = open_real(os.path.dirname(admin))
        try:
            folders.remove(os.path.basename(admin), dir_fd=fd)
        finally:
            os.close(fd)


def _write(name: str, content: bytes, dir_fd: int) -> None:
    with open(os.open(name, NEW, 0o666, dir_fd=dir_fd), "wb") as file:
        file.write(content)


def copy_file(source: str, target: str) -> None:
    """The time too: git reads a file again if it was changed in the second in which the index was
    written."""
    fd = open_regular(source)
    mtime = os.fstat(fd).st_mtime_ns
    data = drain(fd, MOST_INDEX)
    if len(data) <= MOST_INDEX:
        Path(target).write_bytes(data)
        os.utime(target, ns=(mtime, mtime))


def make_plain(path: Path) -> None:
    """A repository inside of the copy becomes a folder like any other; what it knew is kept beside
    it. What git reads by its name and is not a file goes: it would be waited for, and cannot be
    kept on a branch anyway. From one open directory to the next: a command of the run may still be
    putting links in their places."""
    top = open_real(str(path))
    try:
        for at, inner, others, fd in walk_folders(top):
            files = {entry.name for entry in others}
            for name in {".gitignore", ".gitattributes"} & files:
                kind = stat.S_IFMT(os.lstat(name, dir_fd=fd).st_mode)
                if kind not in (stat.S_IFREG, stat.S_IFLNK):
                    os.unlink(name, dir_fd=fd)
            if at != "." and ".git" in (*inner, *files):
                try:
                    os.rename(".git", "dot-git", src_dir_fd=fd, dst_dir_fd=fd)
                except OSError as error:
                    _cannot(error)
            inner[:] = [f for f in inner if f != ".git"]
    except OSError as error:
        _cannot(error)
    finally:
        os.close(top)


def _cannot(error: OSError) -> None:
    raise RetinueError(f"the worktree cannot be read safely: {error}")


def point_to_repository(path: Path, admin: str) -> bool:
    """Have the copy know again where its data is, if both are there."""
    if not path.is_dir() or not os.path.isdir(admin):
        return False
    pointer = path / ".git"
    if pointer.is_dir() and not pointer.is_symlink():
        pointer.rename(path / "dot-git")
    pointer.unlink(missing_ok=True)
    fd = open_real(str(path))
    try:
        _write(".git", os.fsencode(f"gitdir: {admin}\n"), fd)
    finally:
        os.close(fd)
    return True


def is_inside_tree(source: str, top: str) -> str:
    return os.path.relpath(os.path.realpath(source), os.path.realpath(top))
