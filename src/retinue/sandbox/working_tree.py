"""The files of a repository as they are now, as a git tree, and changing them from one tree to
another. The index and the branch of the user who works there are not changed."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from retinue.errors import RetinueError
from retinue.sandbox import folder_operations as folders
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.git_repository import Git
from retinue.sandbox.git_stage import stage
from retinue.sandbox.open_beneath import make_beneath, open_beneath, open_real
from retinue.sandbox.protected_paths import protected
from retinue.sandbox.worktree_files import copy_file

LINK = "120000"
SUBMODULE = "160000"
GONE = "000000"


@dataclass(frozen=True, slots=True)
class TreeChange:
    """One file in two trees: what it is in each, and what it holds. A mode of GONE: it is not in
    that one."""

    path: str
    old_mode: str
    mode: str
    old: str
    new: str


async def tree_of_files(git: Git) -> str:
    """What is in the directory of a repository, as a tree. Ignored files are omitted."""
    index = f"{git.folder}/{os.urandom(4).hex()}.index"
    try:
        with contextlib.suppress(OSError):
            copy_file(os.path.join(git.repository.own, "index"), index)
        await stage(git, index)
        return await git.text("write-tree", index=index)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(index)


async def changed_files(git: Git, old: str, new: str) -> list[TreeChange]:
    """The files in which two trees differ. An entry for another repository is omitted."""
    options = ("-r", "-z", "--raw", "--no-renames", "--full-index", old, new)
    parts = os.fsdecode(await git.run("diff-tree", *options)).split("\0")
    changes = []
    for head, path in zip(parts[::2], parts[1::2], strict=False):
        words = head.removeprefix(":").split(" ")
        (old_mode, mode), (before, after) = words[:2], words[2:4]
        if SUBMODULE not in (old_mode, mode):
            changes.append(TreeChange(path, old_mode, mode, before, after))
    return changes


def refusal(git: Git, changes: list[TreeChange]) -> str:
    """Why such changes are not made by a program, or ""."""
    top = git.repository.top
    return next((why for c in changes if (why := protected(f"{top}/{c.path}", top))), "")


async def change_files(git: Git, old: str, new: str) -> list[str]:
    """Have the files be as in `new` where they are as in `old`, each in one step. What is so
    already is left, and so is what someone has changed meanwhile: those are returned. Doing it
    again after a crash does the rest."""
    now = await tree_of_files(git)
    changes = await changed_files(git, old, new)
    there = {c.path: (c.mode, c.new) for c in await changed_files(git, old, now)}
    todo, foreign = [], []
    for change in changes:
        state = there.get(change.path, (change.old_mode, change.old))
        if state == (change.old_mode, change.old):
            todo.append(change)
        elif state != (change.mode, change.new):
            foreign.append(change.path)
    if todo:
        await _make(git, new, todo)
    return foreign


async def _make(git: Git, tree: str, changes: list[TreeChange]) -> None:
    scratch = f"{git.folder}/files"
    os.mkdir(scratch, 0o700)
    try:
        await _check_out(git, tree, [c for c in changes if c.mode != GONE], scratch)
        top = open_real(git.repository.top)
        try:
            for change in changes:
                if change.mode == GONE:
                    _remove(top, change.path)
            for change in changes:
                if change.mode != GONE:
                    _put(top, change, scratch)
        finally:
            os.close(top)
    except OSError as error:
        raise RetinueError(f"{error.filename}: {error.strerror}") from None
    finally:
        folders.remove(scratch)


async def _check_out(git: Git, tree: str, changes: list[TreeChange], scratch: str) -> None:
    """These files as they are written to disk here (line ends, for example). The attributes of the
    whole tree count."""
    entries = [f"{c.mode} {c.new}\t{c.path}" for c in changes]
    listed = os.fsdecode(await git.run("ls-tree", "-r", "-z", tree)).split("\0")
    for line in listed:
        head, _, path = line.partition("\t")
        if os.path.basename(path) == ".gitattributes":
            mode, _, name = head.split(" ")
            entries.append(f"{mode} {name}\t{path}")
    index = f"{git.folder}/some.index"
    fed = b"".join(os.fsencode(entry) + b"\0" for entry in entries)
    try:
        await git.run("update-index", "--add", "-z", "--index-info", index=index, fed=fed)
        some = await git.text("write-tree", index=index)
        os.unlink(index)
        await git.run("read-tree", "--reset", "-u", some, index=index, top=scratch, is_long=True)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(index)


def _put(top: int, change: TreeChange, scratch: str) -> None:
    folder, name = os.path.split(change.path)
    source = f"{scratch}/{change.path}"
    fd = make_beneath(top, folder)
    try:
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=fd)  # a folder whose files went before
        if change.mode == LINK:
            draft = f".{os.urandom(8).hex()}.retinue-draft"
            os.symlink(os.readlink(source), draft, dir_fd=fd)
            os.rename(draft, name, src_dir_fd=fd, dst_dir_fd=fd)
        else:
            write_file(name, Path(source).read_bytes(), _mode(change, name, fd, source), dir_fd=fd)
    finally:
        os.close(fd)


def _mode(change: TreeChange, name: str, fd: int, source: str) -> int:
    """Who may read and write a file stays as it is; whether it can be run is part of the change."""
    try:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
        mode = stat.S_IMODE(info.st_mode) if stat.S_ISREG(info.st_mode) else 0
    except OSError:
        mode = 0
    if not mode:
        return stat.S_IMODE(os.stat(source).st_mode) & 0o777
    readable = (mode & 0o444) >> 2
    return (mode | readable if change.mode == "100755" else mode & ~0o111) & 0o777


def _remove(top: int, path: str) -> None:
    """A file, and the folders that are empty without it."""
    folder, name = os.path.split(path)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        fd = open_beneath(top, folder or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)
        try:
            os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)
    while folder:
        folder, name = os.path.split(folder)
        try:
            fd = open_beneath(top, folder or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)
        except OSError:
            return
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError:
            return
        finally:
            os.close(fd)
