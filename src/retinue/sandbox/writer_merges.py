"""Merges parallel writers: the parent's files as a commit from which worktrees start, and their
branches back into the files. The plan of a merge is written down before a file is changed, under a
name that the merge keeps: done again, it continues where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from retinue.core.merges import BranchMerge, WriterCopy, branch_name
from retinue.errors import Refused, RetinueError
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.branch_diff import BranchDiff, WorktreeNote, diff_of
from retinue.sandbox.branch_merge import (
    MergePlan,
    carry_out,
    check_version,
    drop_merged,
    plan_merges,
    tip_of,
)
from retinue.sandbox.git_copy import find_repository
from retinue.sandbox.git_repository import opened
from retinue.sandbox.open_beneath import make_folder
from retinue.sandbox.regular_file import read_small
from retinue.sandbox.working_tree import tree_of_files
from retinue.sandbox.worktree import Worktrees
from retinue.sandbox.worktree_files import refuse_secrets

MOST_PLAN = 64 << 20
BY_PERSON = "asked"
"""In the name of a merge for which a person has asked."""
IN_USE = "others still work in its copy"


async def snapshot(source: str) -> str:
    """The commit that holds the files of a directory as they are: that of its branch, or one on top
    of it that no branch names. RetinueError where there is none."""
    repository = await asyncio.to_thread(find_repository, source)
    await check_version()
    async with opened(repository) as git:
        head = await git.text("rev-parse", "--verify", "HEAD^{commit}")
        tree = await tree_of_files(git)
        if tree != await git.text("rev-parse", f"{head}^{{tree}}"):
            subject = "Files as they stood when sub-agents began"
            head = await git.text("commit-tree", tree, "-p", head, "-m", subject)
        await refuse_secrets(git, head)
        return head


class WriterMerges:
    """The merges of one runtime; its copies are those of `worktrees`."""

    def __init__(self, worktrees: Worktrees) -> None:
        self._worktrees = worktrees
        self.folder = worktrees.folder.with_name("merges")

    async def merge(
        self, key: str, copies: Sequence[WriterCopy], is_used: Callable[[str], bool]
    ) -> tuple[BranchMerge, ...]:
        """What became of each copy. `key` is the permanent name of this merge."""
        reasons: dict[str, str] = {}
        ignored: dict[str, tuple[str, ...]] = {}
        for copy in copies:
            ignored[copy.run] = await self._worktrees.ignored(copy.run)
            if why := await self._settle(copy, is_used):
                reasons[copy.run] = why
        merges: dict[str, BranchMerge] = {}
        for n, place in enumerate(dict.fromkeys(copy.place for copy in copies)):
            mine = [copy for copy in copies if copy.place == place]
            try:
                merges_here = await self._merge_into(f"{key}.{n}", place, mine, reasons)
            except (RetinueError, Refused, OSError) as error:
                merges_here = [_unmerged(copy, str(error).rstrip(".")) for copy in mine]
            merges.update((one.run, one) for one in merges_here)
        return tuple(
            msgspec.structs.replace(merges[copy.run], ignored=ignored[copy.run]) for copy in copies
        )

    async def _settle(self, copy: WriterCopy, is_used: Callable[[str], bool]) -> str:
        """Put what is in a copy on its branch; why that cannot be merged, or ""."""
        place = self._worktrees.place(copy.run)
        if not self._worktrees.has(copy.run):
            return ""
        if is_used(str(place)):
            return IN_USE
        await self._worktrees.close(copy.run, f"Work of {copy.label}")
        is_left = self._worktrees.has(copy.run)
        return f"its files could not be read and stay in {place}" if is_left else ""

    async def _merge_into(
        self, key: str, place: str, copies: Sequence[WriterCopy], reasons: Mapping[str, str]
    ) -> Sequence[BranchMerge]:
        repository = await asyncio.to_thread(find_repository, place)
        async with self._worktrees.lock(repository.top), opened(repository) as git:
            plan = self._planned(key)
            if plan is None:
                plan = await plan_merges(git, copies, reasons)
                self._keep(key, plan)
            if not plan.is_done:
                plan = await carry_out(git, plan)
                self._keep(key, plan)
            await drop_merged(git, plan)
            return plan.merges

    def _planned(self, key: str) -> MergePlan | None:
        try:
            return msgspec.json.decode(
                read_small(self.folder / f"{key}.json", MOST_PLAN), type=MergePlan
            )
        except (OSError, msgspec.MsgspecError):
            return None

    def _keep(self, key: str, plan: MergePlan) -> None:
        make_folder(str(self.folder))
        write_file(self.folder / f"{key}.json", msgspec.json.encode(plan))

    def forget(self, key: str) -> None:
        """The merges whose names begin so are on record, or no one asks for them again."""
        for path in self.folder.glob(f"{key}.*.json"):
            path.unlink(missing_ok=True)

    def sweep(self, open_runs: set[str]) -> None:
        """After a restart: what is left of runs that have ended goes. What a person has asked for
        is done when it is asked for again."""
        for path in self.folder.glob("*.json"):
            run, what, *_ = path.name.split(".")
            if run not in open_runs and what != BY_PERSON:
                path.unlink(missing_ok=True)


def _unmerged(copy: WriterCopy, why: str) -> BranchMerge:
    branch = branch_name(copy.label, copy.run)
    return BranchMerge(run=copy.run, label=copy.label, state="kept", branch=branch, why=why)


async def diffs(place: str, copies: Mapping[str, WriterCopy]) -> dict[str, BranchDiff]:
    """What is on the branches of these copies of a directory, by the names they are given here;
    those without a branch are omitted."""
    diffs_by_run = {}
    repository = await asyncio.to_thread(find_repository, place)
    async with opened(repository) as git:
        for name, copy in copies.items():
            branch = branch_name(copy.label, copy.run)
            if (tip := await tip_of(git, branch)) is not None:
                base = copy.base or await git.text("merge-base", "HEAD", tip)
                note = WorktreeNote(repository=repository.top, inside=".", branch=branch, base=base)
                diffs_by_run[name] = await diff_of(git, note, tip)
    return diffs_by_run


async def foreseen(place: str, copies: Sequence[WriterCopy]) -> dict[str, BranchMerge]:
    """What would become of these copies of a directory, by run, if they were merged now and in this
    order. No file is changed."""
    repository = await asyncio.to_thread(find_repository, place)
    await check_version()
    async with opened(repository) as git:
        plan = await plan_merges(git, copies, {})
    return {one.run: one for one in plan.merges}
