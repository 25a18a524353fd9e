"""Adds everything in a worktree to an index, with few processes, and without long command lines."""

from __future__ import annotations

import os
import stat

from retinue.errors import RetinueError
from retinue.sandbox.git_repository import Git


async def stage(git: Git, index: str) -> None:
    """What is in the place of a submodule is omitted. What cannot be read as its attributes say is
    taken as it is."""
    index_listing = await git.run("ls-files", "-s", "-z", index=index)
    links = {
        entry.split(b"\t", 1)[1]
        for entry in index_listing.split(b"\0")
        if entry.startswith(b"160000")
    }
    if not links:
        try:
            await git.run("add", "--all", "--", ".", index=index, is_long=True)
            return
        except RetinueError:
            pass
    listed = await git.run(
        "ls-files", "-z", "-m", "-o", "--exclude-standard", index=index, is_long=True
    )
    names = sorted({name for name in listed.split(b"\0") if name} - links)
    update = ("update-index", "--add", "--remove", "--replace", "-z")
    try:
        await git.run(*update, "--stdin", index=index, fed=_joined(names), is_long=True)
    except RetinueError:
        files = {
            name: mode
            for name in names
            if b"\n" not in name and (mode := _mode(git.repository.top, name))
        }
        hashed = await git.run(
            "hash-object",
            "-w",
            "--no-filters",
            "--stdin-paths",
            fed=b"".join(b"%s\n" % n for n in files),
            is_long=True,
        )
        pairs = zip(files.items(), hashed.split(), strict=True)
        entries = [b"%s %s\t%s" % (mode, blob, name) for (name, mode), blob in pairs]
        rest = [name for name in names if name not in files]
        await git.run(*update, "--stdin", index=index, fed=_joined(rest), is_long=True)
        await git.run(
            "update-index", "--replace", "-z", "--index-info", index=index, fed=_joined(entries)
        )


def _joined(names: list[bytes]) -> bytes:
    return b"".join(name + b"\0" for name in names)


def _mode(top: str, name: bytes) -> bytes:
    """Of a regular file how git would keep it, else nothing."""
    try:
        info = os.lstat(os.path.join(os.fsencode(top), name))
    except OSError:
        return b""
    if not stat.S_ISREG(info.st_mode):
        return b""
    return b"100755" if info.st_mode & 0o111 else b"100644"
