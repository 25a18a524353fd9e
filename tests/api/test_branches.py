"""What runs in copies of their own have left can be seen and merged afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from retinue import Agent, Refused, Retinue
from retinue.testing import Scripted, call
from tests.api.test_worktree import branches, crew, git, repository
from tests.needs import needs

__all__ = ["repository"]
pytestmark = needs("git")


def test_a_branch_is_named_after_its_run_and_is_listed_shown_and_merged(
    repository: Path, tmp_path: Path
) -> None:
    agent = crew(call("put", name="a.txt", text="changed\n"), label="Fix the Title!")

    async def main() -> None:
        async with Retinue(tmp_path / "r.db", workspace=repository) as retinue:
            outcome = await retinue.run(agent, "Go.")
            (branch,) = await retinue.branches(outcome.id)
            assert branch.branch.startswith("retinue/fix-the-title-")
            assert branches(repository) == [branch.branch]
            assert (branch.state, branch.work is not None) == ("kept", True)
            assert b"-one\n+changed" in await retinue.diff(branch.run)
            merged = await retinue.merge(branch.run)
            assert (merged.state, merged.paths) == ("merged", ("a.txt",))
            assert (await retinue.branches(outcome.id))[0].state == "gone"
            assert b"+changed" in await retinue.diff(branch.run), "the diff is on record"
            assert (await retinue.merge(branch.run)).state == "empty"

    asyncio.run(main())
    assert (repository / "a.txt").read_text() == "changed\n"
    assert branches(repository) == []


def test_a_conflict_changes_nothing_and_is_merged_once_it_is_solved(
    repository: Path, tmp_path: Path
) -> None:
    agent = crew(call("put", name="a.txt", text="changed\n"))

    async def main() -> None:
        async with Retinue(tmp_path / "r.db", workspace=repository) as retinue:
            outcome = await retinue.run(agent, "Go.")
            (branch,) = await retinue.branches(outcome.id)
            (repository / "a.txt").write_text("mine\n")
            merged = await retinue.merge(branch.run)
            assert (merged.state, merged.conflicts) == ("conflict", ("a.txt",))
            assert "<<<<<<< your directory\nmine\n=======\nchanged\n" in merged.hunks
            assert (repository / "a.txt").read_text() == "mine\n"
            git(repository, "checkout", "-q", "a.txt")
            assert (await retinue.merge(branch.run)).state == "merged"

    asyncio.run(main())
    assert (repository / "a.txt").read_text() == "changed\n"


def test_a_run_without_a_copy_has_no_branch(repository: Path, tmp_path: Path) -> None:
    agent = Agent("plain", model=Scripted(["done"], name="m"))

    async def main() -> None:
        async with Retinue(tmp_path / "r.db", workspace=repository) as retinue:
            run = (await retinue.run(agent, "Go.")).id
            assert await retinue.branches(run) == []
            with pytest.raises(Refused, match="had no copy of its own"):
                await retinue.diff(run)

    asyncio.run(main())


def test_what_an_open_run_has_done_is_shown_and_not_merged(
    repository: Path, tmp_path: Path
) -> None:
    agent = crew(call("put", name="a.txt", text="half\n"), call("rest", seconds=600.0))

    async def main() -> None:
        async with Retinue(tmp_path / "r.db", workspace=repository) as retinue:
            run = await retinue.spawn(agent, "Go.")
            async for step in retinue.steps(run):
                if "put into" in repr(step):
                    break
            (branch,) = await retinue.branches(run)
            assert branch.state == "open"
            assert b"+half" in await retinue.diff(branch.run)
            with pytest.raises(Refused, match="still open"):
                await retinue.merge(branch.run)
            await retinue.cancel(run)

    asyncio.run(main())
