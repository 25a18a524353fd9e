"""A copy of the repository for one run: a git worktree on a branch of its own.

What the run changed is put on the branch when it ends; then the copy goes. A branch without changes
goes too, so that all that is left of isolated work is branches with something on them. A note
beside the copy is written before anything is made, so that a crash at any point leaves nothing that
the next start would not find. Nothing in the copy or in the repository is obeyed: git works with
settings of ours (`git.py`), so files are taken as they are stored, without the filters of the
repository; and repositories inside of the copy are made plain files first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path

import msgspec

from retinue.core.merges import branch_name
from retinue.errors import Refused, RetinueError
from retinue.sandbox import background_removal as removal
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.branch_diff import BranchDiff, WorktreeNote, diff_of
from retinue.sandbox.git_copy import Repository, find_repository
from retinue.sandbox.git_repository import opened
from retinue.sandbox.git_stage import stage
from retinue.sandbox.open_beneath import make_beneath, open_real
from retinue.sandbox.regular_file import read_small
from retinue.sandbox.worktree_files import (
    copy_file,
    forget,
    is_inside_tree,
    make_plain,
    point_to_repository,
    refuse_secrets,
    register,
)

log = logging.getLogger("retinue.tools")

CACHES = frozenset(
    [
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".hypothesis",
        ".tox",
        ".venv",
        "node_modules",
    ]
)
"""Folders that programs make by themselves and can make again."""


class Worktrees:
    """The copies of one runtime, each in `folder` under its run's id."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.realpath(folder))
        self._locks: dict[str, asyncio.Lock] = {}

    async def open(self, run: str, source: str, label: str = "", base: str = "") -> str:
        """The directory in which the run works instead of `source`; made on first use, found again
        after a restart. It is a copy of the commit `base`, or of the last one; `label` is what
        people call the run."""
        async with self.lock(run):
            note = self._note(run) or await self._plan(run, source, label, base)
            path = self.place(run)
            if not note.admin or not _is_there(path, note):
                async with self.lock(note.repository):
                    note = await self._create(run, path, note)
            return await asyncio.to_thread(_enter, path, note.inside)

    async def changes(self, run: str, message: str) -> BranchDiff | None:
        """Put what there is on the branch, and tell what it holds; None when the run has changed
        nothing."""
        async with self.lock(run):
            note = self._note(run)
            if note is None or not note.admin:
                return None
            try:
                return await self._record(run, note, message)
            except RetinueError:
                raise
            except Exception as error:  # a run may leave anything there
                raise RetinueError(f"{self.place(run)} cannot be read: {error}") from None

    async def close(self, run: str, message: str = "") -> None:
        """The run is over: keep its changes on its branch, remove the copy, and the branch if it is
        empty. When they cannot be kept, the copy stays where it is."""
        async with self.lock(run):
            note = self._note(run)
            if note is None:
                return
            if note.admin and self.place(run).is_dir():
                try:
                    await self._record(run, note, message)
                except (
                    Exception
                ) as error:  # whatever a run has left in its copy, it ends nothing but this
                    log.warning("the work of run %s stays in %s: %s", run, self.place(run), error)
                    return
            async with self.lock(note.repository):
                await self._remove(run, note)
        self._locks.pop(run, None)

    async def ignored(self, run: str) -> tuple[str, ...]:
        """What the run has made in its copy and git ignores, so that no branch will hold it. Caches
        that programs make by themselves are omitted. A folder that is ignored as a whole is one
        entry."""
        note = self._note(run)
        if note is None or not note.admin or not self.place(run).is_dir():
            return ()
        options = ("-z", "--others", "--ignored", "--exclude-standard", "--directory")
        try:
            async with opened(self._copy(run, note), folders=(note.repository,)) as git:
                index = os.path.join(note.admin, "index")
                listed = os.fsdecode(await git.run("ls-files", *options, index=index))
        except (RetinueError, OSError):  # reported when it is to be kept
            return ()
        paths = (path for path in listed.split("\0") if path)
        return tuple(path for path in paths if not CACHES.intersection(path.split("/")))

    def place(self, run: str) -> Path:
        return self.folder / run

    def runs(self) -> list[str]:
        """Whose copies there are."""
        return sorted(p.stem for p in self.folder.glob("*.json")) if self.folder.is_dir() else []

    async def sweep(self) -> None:
        """What is left of copies whose end was cut short is removed."""
        await removal.sweep(self.folder)

    def has(self, run: str) -> bool:
        return self._note(run) is not None

    def lock(self, name: str) -> asyncio.Lock:
        """Of a run, or of the directory of a repository."""
        return self._locks.setdefault(name, asyncio.Lock())

    def _note(self, run: str) -> WorktreeNote | None:
        try:
            return msgspec.json.decode(read_small(self.folder / f"{run}.json"), type=WorktreeNote)
        except (OSError, msgspec.MsgspecError):
            return None

    def _copy(self, run: str, note: WorktreeNote) -> Repository:
        shared = os.path.dirname(os.path.dirname(note.admin))
        return Repository(str(self.place(run)), note.admin, shared)

    def _keep(self, run: str, note: WorktreeNote) -> WorktreeNote:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(self.folder / f"{run}.json", msgspec.json.encode(note), durable=False)
        return note

    async def _plan(self, run: str, source: str, label: str, base: str) -> WorktreeNote:
        try:
            repository = await asyncio.to_thread(find_repository, source)
            async with opened(repository) as git:
                base = await git.text("rev-parse", "--verify", f"{base or 'HEAD'}^{{commit}}")
                await refuse_secrets(git, base)
        except Refused:
            raise
        except RetinueError as error:
            raise RetinueError(
                f"isolation='worktree' needs a git repository with a commit, and {source} "
                f"is not one ({error}). Nothing was changed. Run `git init` and commit, "
                "or remove the isolation."
            ) from None
        top = repository.top
        return self._keep(
            run,
            WorktreeNote(
                repository=top,
                inside=is_inside_tree(source, top),
                branch=branch_name(label, run),
                base=base,
            ),
        )

    async def _create(self, run: str, path: Path, note: WorktreeNote) -> WorktreeNote:
        """Make the copy, or make it again when only half of it is there. What is there is not
        thrown away."""
        if note.admin and point_to_repository(path, note.admin):
            return note
        await removal.remove_soon(path)
        repository = await asyncio.to_thread(find_repository, note.repository)
        branch = f"refs/heads/{note.branch}"
        async with opened(repository) as git:
            try:
                base = await git.text("rev-parse", "--verify", "--quiet", f"{branch}^{{commit}}")
            except RetinueError:
                base = note.base
                await git.point(branch, base)
            index = f"{git.folder}/index"
            await asyncio.to_thread(os.makedirs, path, 0o700)
            await git.run(
                "read-tree", "--reset", "-u", base, index=index, top=str(path), is_long=True
            )
            admin = await asyncio.to_thread(register, repository, run, path, branch, index)
        return self._keep(run, msgspec.structs.replace(note, admin=admin))

    async def _record(self, run: str, note: WorktreeNote, message: str) -> BranchDiff | None:
        """A commit of everything in the copy on top of where its run has got to, by git's inner
        commands alone."""
        await asyncio.to_thread(make_plain, self.place(run))
        async with opened(self._copy(run, note), folders=(note.repository,)) as git:
            index = f"{git.folder}/index"
            with contextlib.suppress(OSError):
                await asyncio.to_thread(copy_file, os.path.join(note.admin, "index"), index)
            head = await git.text("rev-parse", "--verify", "HEAD^{commit}")
            await stage(git, index)
            tree = await git.text("write-tree", index=index)
            commit = head
            if tree != await git.text("rev-parse", f"{head}^{{tree}}"):
                subject = message.replace("\0", "").strip()[:2_000] or "Work of a run"
                commit = await git.text("commit-tree", tree, "-p", head, "-m", subject)
            if commit == note.base:
                return None
            await git.point(f"refs/heads/{note.branch}", commit)
            return await diff_of(git, note, commit)

    async def _remove(self, run: str, note: WorktreeNote) -> None:
        await removal.remove_soon(self.place(run))
        if os.path.basename(os.path.dirname(note.admin)) == "worktrees":
            await asyncio.to_thread(forget, note.admin)
        with contextlib.suppress(RetinueError):
            async with opened(await asyncio.to_thread(find_repository, note.repository)) as git:
                # Only if nothing was added to it.
                await git.drop(f"refs/heads/{note.branch}", note.base)
        (self.folder / f"{run}.json").unlink(missing_ok=True)


def _enter(path: Path, inside: str) -> str:
    """The folder of the copy that corresponds to the one that the run was sent to. It is made, if
    it has to be, from one open directory to the next, none of them reached by a link."""
    top = open_real(str(path))
    try:
        os.close(make_beneath(top, inside))
    except OSError as error:
        raise RetinueError(
            f"{inside} is not a folder in the worktree, or a link leads out of it "
            f"({error.strerror}). Nothing was done there"
        ) from None
    finally:
        os.close(top)
    return str(path if inside == "." else path / inside)


def _is_there(path: Path, note: WorktreeNote) -> bool:
    """Whether the copy still belongs to the data that git keeps of it. (A crash, or its run, may
    have changed that.)"""
    try:
        return read_small(path / ".git", 8192) == os.fsencode(f"gitdir: {note.admin}\n")
    except OSError:
        return False
