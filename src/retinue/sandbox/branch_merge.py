"""Merges branches into the files of a directory, one after the other. First it is all computed
among git's objects, which changes no file, and written down; then the files are changed. What is
cut short is done again from what was written down, so nothing is lost and nothing done twice."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from retinue.core.merges import BranchMerge, WriterCopy, branch_name
from retinue.errors import RetinueError
from retinue.formats.safe_text import one_line
from retinue.sandbox.git_process import base as git_environment
from retinue.sandbox.git_process import program
from retinue.sandbox.git_process import run as run_git
from retinue.sandbox.git_repository import Git
from retinue.sandbox.working_tree import change_files, changed_files, refusal, tree_of_files

OLDEST_GIT = (2, 38)
"""The first git that merges without touching files."""
MOST_HUNKS = 4_000
HUNK = re.compile(r"^<{7} .*?^>{7} [^\n]*\n", re.DOTALL | re.MULTILINE)


class MergePlan(msgspec.Struct, frozen=True, kw_only=True):
    """From which tree to which the files of `top` are to be changed, what that means for each
    branch, and what each branch named then."""

    top: str
    old: str
    new: str
    merges: tuple[BranchMerge, ...]
    tips: dict[str, str]
    is_done: bool = False


async def check_version() -> None:
    """RetinueError where git is too old to merge."""
    if await _version() < OLDEST_GIT:
        raise RetinueError(f"git is older than {'.'.join(map(str, OLDEST_GIT))}")


_known: dict[str, tuple[int, ...]] = {}


async def _version() -> tuple[int, ...]:
    if program() not in _known:
        output = (await run_git(("--version",), git_environment())).decode()
        _known[program()] = tuple(int(n) for n in re.findall(r"\d+", output)[:2])
    return _known[program()]


async def plan_merges(
    git: Git, copies: Sequence[WriterCopy], reasons: Mapping[str, str]
) -> MergePlan:
    """What becomes of each copy's branch, in order. `kept` are runs whose changes must stay where
    they are, with the reason."""
    old = tree = await tree_of_files(git)
    merges, tips = [], {}
    for copy in copies:
        branch = branch_name(copy.label, copy.run)
        tip = await tip_of(git, branch)
        merge = BranchMerge(run=copy.run, label=copy.label, state="empty")
        if tip is not None and tip != copy.base:
            tips[branch] = tip
            base = copy.base or await git.text("merge-base", "HEAD", tip)
            merge = await _measured(git, replace(merge, branch=branch), base, tip)
            why = reasons.get(copy.run, "" if copy.is_wanted else "it did not complete its task")
            if why:
                merge = replace(merge, state="kept", why=why)
            else:
                merge, tree = await _merge_one(git, copy, merge, base, tree, tip)
        elif copy.run in reasons:
            merge = replace(merge, state="kept", why=reasons[copy.run])
        merges.append(merge)
    return MergePlan(top=git.repository.top, old=old, new=tree, merges=tuple(merges), tips=tips)


async def tip_of(git: Git, branch: str) -> str | None:
    """The commit that a branch names; None when there is no such branch."""
    try:
        return await git.text("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
    except RetinueError:
        return None


async def _measured(git: Git, merge: BranchMerge, base: str, tip: str) -> BranchMerge:
    options = ("-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", base, tip)
    lines = [
        line.split("\t", 2)
        for line in os.fsdecode(await git.run("diff-tree", *options)).split("\0")
        if line.count("\t") >= 2
    ]
    return replace(
        merge,
        files=len(lines),
        added=sum(int(n) for n, _, _ in lines if n.isdigit()),
        removed=sum(int(n) for _, n, _ in lines if n.isdigit()),
        paths=tuple(path for _, _, path in lines),
    )


async def _merge_one(
    git: Git, copy: WriterCopy, merge: BranchMerge, base: str, tree: str, tip: str
) -> tuple[BranchMerge, str]:
    """Into a tree; it stays as it is if two have changed the same lines."""
    ours = await git.text("commit-tree", tree, "-p", base, "-m", "Files as they stand")
    options = ("--write-tree", "-z", "--name-only", "--no-messages", ours, tip)
    answer = await git.run("merge-tree", *options, is_long=True, good=(0, 1))
    merged, *conflicts = [part for part in os.fsdecode(answer).split("\0") if part]
    if conflicts:
        visible = [c for c in conflicts if not copy.is_hidden(f"{git.repository.top}/{c}")]
        marked = await _marked(git, merged, visible)
        conflict = replace(
            merge,
            state="conflict",
            conflicts=tuple(conflicts),
            hunks=_hunks(marked, merge.label),
            places=tuple(place for path in conflicts for place in _places(path, marked.get(path))),
        )
        return conflict, tree
    if why := refusal(git, await changed_files(git, tree, merged)):
        return replace(merge, state="kept", why=why), tree
    return replace(merge, state="merged"), merged


async def _marked(git: Git, tree: str, paths: Sequence[str]) -> dict[str, str]:
    """The files in conflict, as git marks them; without those that one side has removed."""
    contents = {}
    for path in paths:
        try:
            content = await git.run("cat-file", "blob", f"{tree}:{path}", most=1 << 20)
        except RetinueError:  # one has removed what the other has changed
            continue
        contents[path] = content.decode("utf-8", "replace")
    return contents


def _hunks(marked: Mapping[str, str], label: str) -> str:
    """The lines in conflict, as far as there is room to show them."""
    text = ""
    for path, content in marked.items():
        for hunk in HUNK.findall(content):
            named = re.sub(r"\A<{7} .*$", "<<<<<<< your directory", hunk, flags=re.MULTILINE)
            named = re.sub(r"(?m)^>{7} .*$", lambda _: f">>>>>>> {one_line(label)}", named)
            if len(text) + len(named) > MOST_HUNKS:
                return f"{text}(and more)\n"
            text += f"{one_line(path)}:\n{named}"
    return text


def _places(path: str, content: str | None) -> list[str]:
    """`src/a.py:40-58` for each part in conflict, with the lines of the files as they are now; the
    path alone where there are no lines."""
    places, n_marks = [], 0
    for hunk in HUNK.finditer(content or ""):
        first = (content or "").count("\n", 0, hunk.start()) + 1 - n_marks
        n_ours = hunk[0].split("\n=======\n")[0].count("\n")
        n_marks += hunk[0].count("\n") - n_ours
        last = first + n_ours - 1
        places.append(f"{path}:{first}-{last}" if last > first else f"{path}:{first}")
    return places or [path]


async def carry_out(git: Git, plan: MergePlan) -> MergePlan:
    """Change the files as planned. What someone has changed meanwhile is left alone, and the branch
    that has to do with it stays."""
    rest = set(await change_files(git, plan.old, plan.new))
    merges = tuple(_left_over(one, rest) if rest else one for one in plan.merges)
    return replace(plan, merges=merges, is_done=True)


def _left_over(one: BranchMerge, paths: set[str]) -> BranchMerge:
    mine = sorted(paths.intersection(one.paths))
    if one.state != "merged" or not mine:
        return one
    names = ", ".join(mine[:5])
    why = f"{names} changed meanwhile, so that was left alone and only the rest merged"
    return replace(one, state="kept", why=why)


async def drop_merged(git: Git, plan: MergePlan) -> None:
    """What is merged needs no branch; one that has moved on since stays."""
    for one in plan.merges:
        if one.state == "merged" and one.branch in plan.tips:
            await git.drop(f"refs/heads/{one.branch}", plan.tips[one.branch])
