"""Copies of a repository, from which something once got out, or in which it was lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue import Retinue, tool
from retinue.core.merges import branch_name
from retinue.sandbox import git_folders, worktree
from retinue.sandbox.worktree import Worktrees
from retinue.testing import call
from tests.needs import needs
from tests.repeats import times
from tests.security.holes import (
    FREE,
    agent,
    git,
    hire,
    is_directory,
    make_repository,
    results,
    shown_by,
    until,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = make_repository(tmp_path / "repository")
    (top / "sub").mkdir()
    return top


@needs("git")
@needs("bwrap")
def test_a_repository_inside_of_the_copy_runs_nothing_outside_of_the_sandbox(
    repository: Path, tmp_path: Path
) -> None:
    path = tmp_path / "ran"
    command = (
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; "
        "mkdir nest; cd nest; "
        "git init -q . && echo hi > f && echo '* filter=x' > .gitattributes && git add . && git "
        "commit -qm x && "
        f"git config filter.x.clean 'touch {path}; cat' && echo other > f"
    )

    async def main() -> None:
        async with Retinue(tmp_path / "r.db", workspace=repository) as retinue:
            one = agent("one", call("shell", command=command), tools=["shell"])
            await retinue.run(one, "Go.", permissions=FREE, isolation="worktree")

    asyncio.run(main())
    assert not path.exists()


@needs("git")
def test_a_copy_does_not_lead_out_through_a_link_of_the_last_commit(
    repository: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository / "d").symlink_to(outside)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "link")
    (repository / "d").unlink()
    (repository / "d").mkdir()

    async def main() -> None:
        child = agent("child", call("write", path="evil", content="x"), tools=["write"])
        lead = agent(
            "lead",
            call("hire"),
            tools=[hire(child, cwd="d", isolation="worktree"), "write"],
            staff=[child],
        )
        async with Retinue(tmp_path / "r.db", workspace=repository) as retinue:
            await retinue.run(lead, "Go.", permissions=FREE)

    asyncio.run(main())
    assert os.listdir(outside) == []


def _lock(copy: Path) -> None:
    (Path((copy / ".git").read_text()[8:].strip()) / "index.lock").write_text("")


def _nested(copy: Path) -> None:
    (copy / "nest").mkdir()
    git(copy / "nest", "init", "-q")


def _other_branch(copy: Path) -> None:
    git(copy, "checkout", "-q", "-b", "other")


def _detached(copy: Path) -> None:
    git(copy, "checkout", "-q", "--detach")


def _encoding(copy: Path) -> None:
    (copy / ".gitattributes").write_text("* working-tree-encoding=UTF-16\n")


def _no_git(copy: Path) -> None:
    (copy / ".git").unlink()


@needs("git")
@pytest.mark.parametrize("spoil", [_lock, _nested, _other_branch, _detached, _encoding, _no_git])
def test_the_work_of_a_run_is_on_its_branch_or_still_in_its_copy(
    repository: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(repository)))
        (copy / "new.txt").write_text("precious\n")
        spoil(copy)
        await trees.close("r1", "task")
        output = shown_by(repository, "retinue/run-r1:new.txt")
        assert output == "precious\n" or (copy / "new.txt").exists()

    asyncio.run(main())


@needs("git")
@pytest.mark.parametrize("task", [" \n", "a\0b"])
def test_any_task_makes_a_commit(repository: Path, tmp_path: Path, task: str) -> None:
    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        (Path(await trees.open("r1", str(repository))) / "new.txt").write_text("precious\n")
        await trees.close("r1", task)
        assert git(repository, "show", "retinue/run-r1:new.txt") == "precious\n"

    asyncio.run(main())


@needs("git")
def test_a_cancel_while_git_is_at_work_loses_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(repository)))
        (copy / "new.txt").write_text("precious\n")
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        monkeypatch.setattr(git_folders, "PLACES", (str(temporary),))
        monkeypatch.setattr(worktree, "make_plain", lambda path: None)
        os.mkfifo(copy / ".gitignore")  # git waits for somebody who writes to it
        work = asyncio.ensure_future(trees.changes("r1", "task"))

        async def is_locked() -> bool:
            return bool(list(temporary.glob("*/index.lock")))

        await until(is_locked)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        (copy / ".gitignore").unlink()
        await trees.close("r1", "task")
        assert git(repository, "show", "retinue/run-r1:new.txt") == "precious\n"

    asyncio.run(main())


@needs("git")
def test_a_runtime_in_memory_leaves_nothing_of_an_open_isolated_run_but_its_branch(
    repository: Path,
) -> None:
    async def main() -> None:
        event = asyncio.Event()

        @tool(name="rest", restart="pure")
        async def rest() -> str:
            """Wait."""
            event.set()
            await asyncio.sleep(600)
            return ""

        one = agent(
            "one",
            call("write", path="n.txt", content="precious"),
            call("rest"),
            tools=["write", rest],
        )
        async with Retinue(workspace=repository) as retinue:
            run = await retinue.spawn(one, "Go.", permissions=FREE, isolation="worktree")
            await event.wait()
        assert git(repository, "worktree", "list").count("\n") == 1
        assert git(repository, "show", f"{branch_name('one', run)}:n.txt") == "precious"

    asyncio.run(main())


@needs("git")
def test_a_directory_that_was_never_committed_is_there_in_the_copy(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "fresh").mkdir()

    async def main() -> None:
        assert is_directory(
            await Worktrees(tmp_path / "trees").open("r1", str(repository / "fresh"))
        )

    asyncio.run(main())


@needs("git")
def test_a_child_that_outlives_its_isolated_parent_keeps_its_directory(
    repository: Path, tmp_path: Path
) -> None:
    async def main() -> None:
        go = asyncio.Event()

        @tool(name="rest", restart="pure")
        async def rest() -> str:
            """Wait."""
            await go.wait()
            return ""

        child = agent(
            "child", call("rest"), call("write", path="late", content="x"), tools=["write", rest]
        )
        lead = agent(
            "lead",
            call("hire"),
            tools=[hire(child, join="none", on_parent_end="keep"), "write"],
            staff=[child],
        )
        async with Retinue(tmp_path / "r.db", workspace=repository) as retinue:
            run = await retinue.run(lead, "Go.", permissions=FREE, isolation="worktree")
            (node,) = (await retinue.tree(run.id)).children

            async def is_gone() -> bool:
                return not is_directory((await retinue._row(node.id)).spec.request.cwd)

            with contextlib.suppress(AssertionError, TimeoutError):
                await asyncio.wait_for(until(is_gone), 2)
            go.set()
            await retinue.wait(node.id)
            assert "Created late" in (await results(retinue, node.id))[1]

    asyncio.run(main())


@needs("git")
def test_a_worktree_of_the_user_that_is_away_for_a_while_is_not_forgotten(
    repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "theirs"))
    (tmp_path / "theirs").rename(tmp_path / "away")

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        await trees.open("r1", str(repository))
        await trees.close("r1")

    asyncio.run(main())
    (tmp_path / "away").rename(tmp_path / "theirs")
    assert git(tmp_path / "theirs", "status", "--short") == ""


@needs("git")
def test_many_copies_of_one_repository_are_made_and_closed_at_once(
    repository: Path, tmp_path: Path
) -> None:
    n_copies = times(25)

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")

        async def life(n: int) -> None:
            (Path(await trees.open(f"q{n}", str(repository))) / "n").write_text(str(n))
            await trees.close(f"q{n}", "task")

        for first in range(0, n_copies, 25):
            await asyncio.gather(*(life(first + n) for n in range(25)))
        assert trees.runs() == []

    asyncio.run(main())
    branches = git(
        repository, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/heads/retinue/"
    ).split()
    assert sorted(branches) == sorted(f"run-q{n}" for n in range(n_copies))
    contents = [git(repository, "show", f"retinue/run-q{n}:n") for n in (0, 12, 24)]
    assert contents == ["0", "12", "24"]


@needs("git")
def test_a_forged_submodule_runs_nothing_outside_of_the_sandbox(tmp_path: Path) -> None:
    """The commit has a submodule; the run puts a repository in its place, at the commit that is on
    record (so that git looks inside for changes), with a filter, and stands in the way of what
    would rename its `.git`."""
    top, path = make_repository(tmp_path / "top"), tmp_path / "ran"
    git(top, "submodule", "add", "-q", str(make_repository(tmp_path / "sub")), "mod")
    git(top, "commit", "-qm", "mod")

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(top)))
        mod = copy / "mod"
        git(mod, "init", "-q")
        (mod / "f").write_text("hi\n")
        (mod / ".gitattributes").write_text("* filter=x\n")
        git(mod, "add", ".")
        git(mod, "commit", "-qm", "x")
        git(mod, "config", "filter.x.clean", f"touch {path}; cat")
        (mod / "f").write_text("other\n")
        os.utime(mod / "f", (1, 1))
        (mod / "dot-git" / "x").mkdir(parents=True)
        commit = git(copy, "ls-files", "-s", "mod").split()[1]
        (mod / ".git" / git(mod, "symbolic-ref", "HEAD").strip()).write_text(f"{commit}\n")
        await trees.close("r1", "task")

    asyncio.run(main())
    assert not path.exists()
