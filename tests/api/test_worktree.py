"""A child in a copy of its own: its result carries the branch and the diff, and nothing else is
left of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from retinue import Actions, Agent, Context, Outcome, Retinue, tool
from retinue.models.base import ModelRequest
from retinue.sandbox.worktree import Worktrees
from retinue.testing import Scripted, call
from tests.needs import needs
from tests.waiting import SECONDS, until, until_here

pytestmark = needs("git")


def git(where: Path, *args: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", *who, "-C", str(where), *args], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "repository"
    (top / "sub").mkdir(parents=True)
    (top / "a.txt").write_text("one\n")
    (top / "sub" / "b.txt").write_text("two\n")
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    return top


@tool(restart="unsafe")
def put(context: Context, name: str, text: str) -> str:
    """Write a file."""
    (Path(context.root) / name).write_text(text)
    return f"put into {context.root}"


@tool(restart="pure")
async def rest(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "rested"


def crew(*script: Any, tasks: int = 1, **options: Any) -> Agent:
    """A lead that has its child do the script in isolation."""

    def work(request: ModelRequest) -> object:
        return script[request.turn] if request.turn < len(script) else "finished"

    child = Agent("child", model=Scripted(work, name="m1"), tools=[put, rest])

    @tool(restart="keyed")
    async def hire(context: Context) -> Actions:
        """Hire."""
        return context.spawn_actions(
            child, *[f"task {n}" for n in range(tasks)], isolation="worktree", **options
        )

    def lead(request: ModelRequest) -> object:
        return call("hire") if request.turn == 0 else request.messages[-1].text

    return Agent("lead", model=Scripted(lead, name="m2"), tools=[hire], staff=[child])


def run(agent: Agent, where: Path, store: Path) -> tuple[Outcome, str]:
    async def main() -> tuple[Outcome, str]:
        async with Retinue(store, workspace=where) as retinue:
            outcome = await retinue.run(agent, "Go.")
            (child, *_) = await retinue._store.children(outcome.id)
            work = child.run.state.ending.work  # type: ignore[union-attr]
            diff = (await retinue.artifact(work.diff)).decode() if work else ""
            return outcome, diff

    return asyncio.run(main())


def leftovers(repository: Path, store: Path) -> tuple[list[str], list[str]]:
    folder = Path(f"{store}.tools") / "worktrees"
    trees = [line for line in git(repository, "worktree", "list").splitlines()][1:]
    return trees, sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []


def is_clean(repository: Path, store: Path) -> bool:
    """Whether nothing is left of the copies; what takes long to remove goes in the background."""
    return bool(until_here(lambda: leftovers(repository, store) == ([], [])))


def branches(repository: Path) -> list[str]:
    return git(repository, "branch", "--list", "retinue/*", "--format", "%(refname:short)").split()


def test_its_result_carries_the_branch_and_the_diff_and_the_parents_files_are_untouched(
    repository: Path, tmp_path: Path
) -> None:
    store = tmp_path / "r.db"
    agent = crew(
        call("put", name="a.txt", text="changed\n"), call("put", name="new.txt", text="new\n")
    )
    outcome, diff = run(agent, repository, store)
    (branch,) = branches(repository)
    assert f"[Changes on branch {branch} since" in outcome.text
    assert "2 files, +2 -1" in outcome.text
    assert "-one\n+changed" in diff
    assert "new.txt" in diff
    assert (repository / "a.txt").read_text() == "one\n"
    assert git(repository, "show", f"{branch}:a.txt") == "changed\n"
    assert is_clean(repository, store)


def test_a_copy_without_changes_vanishes_with_its_branch(repository: Path, tmp_path: Path) -> None:
    store = tmp_path / "r.db"
    outcome, diff = run(crew(call("rest", seconds=0.0)), repository, store)
    assert (outcome.text, diff, branches(repository)) == ("finished", "", [])
    assert is_clean(repository, store)


def test_two_isolated_siblings_write_the_same_file_and_neither_sees_the_other(
    repository: Path, tmp_path: Path
) -> None:
    agent = crew(call("put", name="a.txt", text="mine\n"), tasks=2)
    run(agent, repository, tmp_path / "r.db")
    assert len(branches(repository)) == 2
    assert is_clean(repository, tmp_path / "r.db")


def test_it_works_in_the_same_folder_of_the_copy(repository: Path, tmp_path: Path) -> None:
    agent = crew(call("put", name="b.txt", text="changed\n"))
    _, diff = run(agent, repository / "sub", tmp_path / "r.db")
    assert "sub/b.txt" in diff


def test_a_cancelled_run_leaves_its_work_on_the_branch(repository: Path, tmp_path: Path) -> None:
    store = tmp_path / "r.db"
    agent = crew(call("put", name="a.txt", text="half\n"), call("rest", seconds=600.0))

    async def main() -> None:
        async with Retinue(store, workspace=repository) as retinue:
            run = await retinue.spawn(agent, "Go.")
            async for step in retinue.steps(run, tree=False, deltas=True):
                if "ActionsReturned" in repr(step):
                    break
            (child,) = await retinue._store.children(run)
            async for step in retinue.steps(child.spec.id, tree=False, deltas=True):
                if "put into" in repr(step):
                    break
            await retinue.cancel(run)
            await until(lambda: leftovers(repository, store) == ([], []))

    asyncio.run(main())
    assert is_clean(repository, store)
    (branch,) = branches(repository)
    assert git(repository, "show", f"{branch}:a.txt") == "half\n"


def test_without_a_repository_the_model_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    agent = crew(call("put", name="a.txt", text="x"))
    run(agent, tmp_path / "plain", tmp_path / "r.db")
    assert list((tmp_path / "plain").iterdir()) == []


DIES = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from tests.api.test_worktree import crew
    from retinue import Retinue
    from retinue.testing import call

    async def main():
        agent = crew(call("put", name="a.txt", text="half\\n"), call("rest", seconds=600.0),
                     on_restart="fail")
        async with Retinue(sys.argv[2], workspace=sys.argv[1]) as retinue:
            run = await retinue.spawn(agent, "Go.")
            while True:
                await asyncio.sleep(0.01)
                for row in await retinue._store.children(run):
                    async for step in retinue.steps(row.spec.id, tree=False, deltas=True):
                        if "put into" in repr(step):
                            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
"""


def test_after_a_kill_the_next_start_leaves_no_copy_behind(
    repository: Path, tmp_path: Path
) -> None:
    store = tmp_path / "r.db"
    script = textwrap.dedent(DIES)
    process = subprocess.run(
        [sys.executable, "-c", script, str(repository), str(store)], check=False, timeout=SECONDS
    )
    assert process.returncode == -signal.SIGKILL
    assert leftovers(repository, store) != ([], [])

    async def main() -> None:
        async with Retinue(store, workspace=repository, agents=[crew("x")]) as retinue:
            await until(lambda: leftovers(repository, store) == ([], []))
            assert retinue.blocked_reason == ""

    asyncio.run(main())
    assert is_clean(repository, store)
    (branch,) = branches(repository)
    assert git(repository, "show", f"{branch}:a.txt") == "half\n"


def test_hooks_of_the_repository_are_not_run(repository: Path, tmp_path: Path) -> None:
    for hook in ("post-checkout", "pre-commit", "post-commit", "commit-msg"):
        path = repository / ".git" / "hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{hook}\n")
        path.chmod(0o755)
    run(crew(call("put", name="a.txt", text="x\n")), repository, tmp_path / "r.db")
    assert len(branches(repository)) == 1
    assert [p for p in os.listdir(tmp_path) if p.startswith("ran-")] == []


def test_a_copy_that_a_crash_left_half_made_is_made_again(repository: Path, tmp_path: Path) -> None:
    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        place = Path(await trees.open("r1", str(repository)))
        (place / ".git").unlink()
        again = Path(await Worktrees(tmp_path / "trees").open("r1", str(repository)))
        assert again == place
        assert (again / "a.txt").read_text() == "one\n"
        await trees.close("r1")

    asyncio.run(main())
    assert branches(repository) == []
