"""The changes on a branch."""

from __future__ import annotations

import msgspec

from retinue.sandbox.git_repository import Git

MOST_DIFF = 8 * 1024 * 1024


class BranchDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What was done on a branch since `base`."""

    branch: str
    base: str
    commit: str
    files: int
    added: int
    removed: int
    diff: bytes


class WorktreeNote(msgspec.Struct, frozen=True, kw_only=True):
    """`admin` is where git keeps the data of the copy, "" until it is made."""

    repository: str
    inside: str
    branch: str
    base: str
    admin: str = ""


async def diff_of(git: Git, note: WorktreeNote, commit: str) -> BranchDiff:
    options = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", note.base, commit)
    numbers = [
        line.split(b"\t")
        for line in (await git.run("diff-tree", "-r", "--numstat", *options)).splitlines()
    ]
    diff = await git.run("diff-tree", "-r", "-p", *options, is_long=True, most=MOST_DIFF)
    return BranchDiff(
        branch=note.branch,
        base=note.base,
        commit=commit,
        files=len(numbers),
        added=sum(int(n[0]) for n in numbers if n[0].isdigit()),
        removed=sum(int(n[1]) for n in numbers if len(n) > 1 and n[1].isdigit()),
        diff=diff,
    )
