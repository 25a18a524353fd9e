"""Reads the history and changes of a repository with fixed commands.

Nothing that a repository or a user sets up is obeyed here: git has a directory of ours
(`sandbox/git_repository.py`), and every word of each command is ours but for the names of commits,
which are resolved to hashes first. So this needs no sandbox to be safe, and uses one where there is
one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from retinue.errors import RetinueError
from retinue.sandbox.git_copy import find_repository
from retinue.sandbox.git_repository import Git, opened
from retinue.sandbox.readonly_paths import beneath
from retinue.syntax.changes.change_set import ChangedFile, ChangeSet, CommitHistory

COMMITS = 300
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
PLAIN = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color")
MOST_FILES = 2_000
MOST_BYTES = 2_000_000
NO_GIT = "this is not a git working tree"
Reader = Callable[[str], bytes | None]
"""Reads a file of the working tree by its path there; None for what may not be read or is none."""


@dataclass(frozen=True, slots=True)
class OpenRepository:
    """`prefix` is the folder of the run in the repository, "" or with a slash at its end."""

    git: Git
    prefix: str

    async def lines(self, *args: str) -> list[str]:
        """What is between NULs in an answer."""
        return os.fsdecode(await self.git.run(*args, is_long=True)).split("\0")

    def own(self, path: str) -> str | None:
        """A path of the repository as the run sees it; None outside of the run's folder."""
        return path[len(self.prefix) :] if path.startswith(self.prefix) else None


@contextlib.asynccontextmanager
async def opened_at(root: str, folders: tuple[str, ...]) -> AsyncIterator[OpenRepository]:
    """The repository around a directory, if it lies in what the run was given."""
    try:
        repository = await asyncio.to_thread(find_repository, root)
    except RetinueError as error:
        why = str(error)
        raise RetinueError(NO_GIT if "is not in a git repository" in why else why) from None
    if not beneath(repository.top, (*folders, root)):
        raise RetinueError(
            "the git working tree begins above this directory, outside of what this run may read"
        )
    inside = await asyncio.to_thread(_inside, root, repository.top)
    async with opened(repository, folders=folders) as git:
        yield OpenRepository(git, inside)


def _inside(root: str, top: str) -> str:
    inside = os.path.relpath(os.path.realpath(root), top)
    return "" if inside == "." else f"{inside}/"


async def read_history(root: str, folders: tuple[str, ...]) -> CommitHistory:
    """Which files the last commits changed."""
    try:
        async with opened_at(root, folders) as repository:
            if not await _has_commits(repository):
                return CommitHistory(problem="there is no commit yet")
            words = ("log", "--no-merges", f"--max-count={COMMITS}", "--no-renames", "-z", *PLAIN)
            pieces = await repository.lines(*words, "--name-only", "--format=%x01%as", "HEAD")
    except RetinueError as error:
        return CommitHistory(problem=str(error))
    dates: list[str] = []
    changes: Counter[str] = Counter()
    for piece in (piece.strip("\n") for piece in pieces):
        if piece.startswith("\x01"):
            dates.append(piece[1:11])
            piece = piece[11:].lstrip("\n")
        own = repository.own(piece) if piece else None
        if own:
            changes[own] += 1
    if not dates:
        return CommitHistory(problem="every commit is a merge")
    return CommitHistory(len(dates), min(dates), max(dates), dict(sorted(changes.items())))


async def _has_commits(repository: OpenRepository) -> bool:
    try:
        await repository.git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    except RetinueError:
        return False
    return True


async def read_changes(
    root: str, folders: tuple[str, ...], revision: str, read: Reader
) -> ChangeSet:
    """What was changed: what is not committed, or a commit or a range that is named; and when
    nothing is named and everything is committed, the last commit."""
    try:
        async with opened_at(root, folders) as repository:
            if not await _has_commits(repository):
                return ChangeSet(problem="there is no commit yet, so nothing to compare with")
            if revision:
                return await _named(repository, revision, read)
            files = await _compared(repository, "HEAD", "", read)
            if files:
                return ChangeSet("uncommitted changes", tuple(files))
            return await _last_commit(repository, read)
    except RetinueError as error:
        return ChangeSet(problem=str(error))


async def _last_commit(repository: OpenRepository, read: Reader) -> ChangeSet:
    git = repository.git
    words = ("--max-count=1", "--format=%h %s")
    line = await git.text("log", *words, "HEAD")
    files = await _compared(repository, await _parent(repository), "HEAD", read)
    name, _, subject = line.partition(" ")
    title = f'the last commit, {name} "{subject}"; nothing is uncommitted'
    return ChangeSet(title, tuple(files), 1)


async def _parent(repository: OpenRepository) -> str:
    """The commit before the last one, or the tree without files."""
    try:
        return await repository.git.text("rev-parse", "--verify", "--quiet", "HEAD^")
    except RetinueError:
        return EMPTY_TREE


async def _named(repository: OpenRepository, revision: str, read: Reader) -> ChangeSet:
    git = repository.git
    start, dots, end = revision.partition("...") if "..." in revision else revision.partition("..")
    is_parent = dots and start in ("HEAD^", "HEAD~1", "HEAD~")
    old = await (_parent(repository) if is_parent else _commit(repository, start or "HEAD"))
    if not dots:
        files = await _compared(repository, old, "", read)
        return ChangeSet(f"the working tree against {revision}", tuple(files))
    new = await _commit(repository, end or "HEAD")
    if dots == "...":
        old = await git.text("merge-base", old, new)
    files = await _compared(repository, old, new, read)
    wanted_commits = (new,) if old == EMPTY_TREE else (new, f"^{old}")
    n_commits = int(await git.text("rev-list", "--count", "--no-merges", *wanted_commits))
    head = await git.text("rev-parse", "HEAD")
    is_on_disk = new == head and not await _compared(repository, "HEAD", "", read)
    return ChangeSet(revision, tuple(files), n_commits, is_on_disk)


async def _commit(repository: OpenRepository, name: str) -> str:
    try:
        return await repository.git.text(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
    except RetinueError:
        raise RetinueError(f"there is no commit {name!r} in this repository") from None


async def _compared(
    repository: OpenRepository, old: str, new: str, read: Reader
) -> list[ChangedFile]:
    """The files that differ between two commits, or between a commit and the working tree, which is
    then all that is not ignored."""
    words = ("diff", "--find-renames", "-z", *PLAIN)
    ends = (old, new) if new else (old,)
    entries = _entries(await repository.lines(*words, "--raw", "--no-abbrev", *ends, "--"))
    counts = _counts(await repository.lines(*words, "--numstat", *ends, "--"))
    if not new:
        others = await repository.lines(
            "ls-files", "--others", "--exclude-standard", "-z", "--full-name"
        )
        entries += [("", "", path, path) for path in sorted(others) if path]
    entries = [e for e in entries if repository.own(e[3]) is not None][:MOST_FILES]
    blobs = await _blobs(repository, [e[0] for e in entries] + [e[1] for e in entries])
    files = []
    for before, after, old_path, path in entries:
        own = repository.own(path) or path
        data = blobs.get(after) if after.strip("0") else read(own)
        is_gone = bool(new) and not after.strip("0")
        n_added, n_removed = counts.get(path, (0, 0))
        data = None if is_gone else data
        if not before.strip("0") and data is not None and path not in counts:
            n_added = data.count(b"\n")
        files.append(
            ChangedFile(
                own,
                repository.own(old_path) or old_path,
                blobs.get(before),
                data,
                n_added,
                n_removed,
            )
        )
    return sorted(files, key=lambda file: file.path)


def _entries(pieces: list[str]) -> list[tuple[str, str, str, str]]:
    """Of `--raw -z`: the hashes before and after, the path before, and the path after."""
    entries, at = [], 0
    while at < len(pieces) and pieces[at].startswith(":"):
        (mode, before, after), status = (words := pieces[at].split(" "))[1:4], words[4]
        n_paths = 2 if status[0] in "RC" else 1
        old_path, path = pieces[at + 1], pieces[at + n_paths]
        if mode != "160000":
            entries.append((before, after, old_path, path))
        at += 1 + n_paths
    return entries


def _counts(pieces: list[str]) -> dict[str, tuple[int, int]]:
    """Of `--numstat -z`: lines added and removed by the path after."""
    counts, at = {}, 0
    while at < len(pieces) and "\t" in pieces[at]:
        added, removed, path = pieces[at].split("\t", 2)
        if not path:
            path = pieces[at + 2]
            at += 2
        counts[path] = (
            int(added) if added.isdigit() else 0,
            int(removed) if removed.isdigit() else 0,
        )
        at += 1
    return counts


async def _blobs(repository: OpenRepository, hashes: list[str]) -> dict[str, bytes]:
    """The contents of some blobs; those that are large are omitted."""
    names = sorted({one for one in hashes if one.strip("0")})
    if not names:
        return {}
    fed = "".join(f"{one}\n" for one in names).encode()
    sizes = (await repository.git.run("cat-file", "--batch-check", fed=fed)).decode().splitlines()
    small = [row.split()[0] for row in sizes if _is_small(row)]
    fed = "".join(f"{one}\n" for one in small).encode()
    data = await repository.git.run("cat-file", "--batch", fed=fed, is_long=True)
    blobs, at = {}, 0
    while at < len(data):
        end = data.index(b"\n", at)
        name, _, size = data[at:end].decode().split(" ")
        blobs[name] = data[end + 1 : end + 1 + int(size)]
        at = end + 2 + int(size)
    return blobs


def _is_small(row: str) -> bool:
    words = row.split()
    return len(words) == 3 and words[1] == "blob" and int(words[2]) <= MOST_BYTES
