"""Children that change files side by side: in copies that are merged in order, or one after the
other."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from retinue import Actions, Agent, Context, Limits, Outcome, Retinue, tool
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from tests.api.test_worktree import branches, git, is_clean, repository
from tests.needs import needs
from tests.waiting import SECONDS

__all__ = ["repository"]
pytestmark = needs("git")
FREE = Limits(mode="bypassPermissions")
LINES = "".join(f"line {n}\n" for n in range(1, 21))


def edit(n: int, text: str) -> object:
    return call("edit", path="a.txt", old=f"line {n}\n", new=f"{text}\n")


def crew(*scripts: Sequence[object], **options: Any) -> Agent:
    """A lead that gives each script to a child of its own, in one call, and says what it was
    told."""

    def work(request: ModelRequest) -> object:
        script = scripts[int(request.messages[0].text.split()[-1])]
        return script[request.turn] if request.turn < len(script) else "done"

    child = Agent("child", model=Scripted(work, name="m1"), tools=["edit", "write", "read"])

    @tool(restart="keyed")
    async def hire(context: Context) -> Actions:
        """Hire."""
        orders = [
            context.request(child, f"task {n}", label=f"writer {n}", **options)
            for n in range(len(scripts))
        ]
        return Actions(spawns=tuple(orders))

    def lead(request: ModelRequest) -> object:
        if request.turn == 0:
            return call("hire")
        return "\n".join(m.text for m in request.messages[1:])

    return Agent("lead", model=Scripted(lead, name="m2"), tools=[hire], staff=[child])


def run(agent: Agent, where: Path, store: Path) -> Outcome:
    async def main() -> Outcome:
        async with Retinue(store, workspace=where, limits=FREE) as retinue:
            return await retinue.run(agent, "Go.")

    return asyncio.run(main())


@pytest.fixture
def project(repository: Path) -> Path:
    (repository / "a.txt").write_text(LINES)
    git(repository, "commit", "-qam", "lines")
    return repository


def test_three_writers_change_one_file_and_all_of_it_is_there(
    project: Path, tmp_path: Path
) -> None:
    agent = crew([edit(2, "zero")], [edit(10, "one")], [edit(18, "two")])
    outcome = run(agent, project, tmp_path / "r.db")
    lines = (project / "a.txt").read_text().splitlines()
    assert [lines[n] for n in (1, 9, 17)] == ["zero", "one", "two"]
    assert "writer 1: merged (1 file, +1 -1: a.txt)" in outcome.text
    assert branches(project) == [] and is_clean(project, tmp_path / "r.db")
    assert git(project, "status", "--porcelain") == " M a.txt\n"


def test_a_conflict_is_told_to_the_parent_and_stays_on_its_branch(
    project: Path, tmp_path: Path
) -> None:
    agent = crew([edit(2, "mine")], [edit(2, "yours")])
    outcome = run(agent, project, tmp_path / "r.db")
    (branch,) = branches(project)
    assert "writer 1: NOT merged, conflict in a.txt" in outcome.text and branch in outcome.text
    assert "    <<<<<<< your directory\n    mine\n    =======\n    yours\n" in outcome.text
    assert (project / "a.txt").read_text().splitlines()[1] == "mine"
    assert "yours" in git(project, "show", f"{branch}:a.txt")


def test_who_is_alone_writes_in_the_directory_itself(project: Path, tmp_path: Path) -> None:
    outcome = run(crew([edit(2, "mine")]), project, tmp_path / "r.db")
    assert "merged" not in outcome.text
    assert (project / "a.txt").read_text().splitlines()[1] == "mine"


@pytest.mark.parametrize("is_asked", [False, True])
def test_outside_of_git_or_if_asked_writers_take_turns(
    project: Path, tmp_path: Path, is_asked: bool
) -> None:
    where = project
    if not is_asked:
        where = tmp_path / "plain"
        where.mkdir()
        (where / "a.txt").write_text(LINES)
    options = {"writers": "turns"} if is_asked else {}
    agent = crew([edit(2, "a")], [edit(3, "b")], [edit(4, "c")], **options)
    order: list[str] = []

    async def main() -> Outcome | None:
        async with Retinue(tmp_path / "r.db", workspace=where, limits=FREE) as retinue:
            id = await retinue.spawn(agent, "Go.")
            async for step in retinue.steps(id):
                kind = type(step.entry.event).__name__
                if kind in ("TextReturned", "ChildEnded"):
                    order.append(f"{kind} {step.entry.run[-4:]}")
            return await retinue.outcome(id)

    outcome = asyncio.run(main())
    assert outcome is not None and outcome.state == "completed"
    assert (where / "a.txt").read_text().startswith("line 1\na\nb\nc\nline 5\n")
    edits = [text.split()[0] for text in order]
    assert edits == ["TextReturned", "ChildEnded"] * 3, "one ends before the next begins"
    assert branches(project) == []


DIES = """
    import asyncio, os, signal, sys
    from retinue import Retinue
    from retinue.sandbox import branch_merge, working_tree, writer_merges
    from tests.api.test_writers import FREE, hurt

    def die(*args):
        os.kill(os.getpid(), signal.SIGKILL)

    where, store, point = sys.argv[1:]
    put, n_put = working_tree._put, 0

    def put_one(*args):
        global n_put
        n_put += 1
        die() if n_put == 2 else put(*args)

    if point == "before the plan":
        writer_merges.plan_merges = die
    elif point == "after the plan":
        writer_merges.carry_out = die
    elif point == "between two files":
        working_tree._put = put_one
    else:
        writer_merges.drop_merged = die

    async def main():
        async with Retinue(store, workspace=where, limits=FREE) as retinue:
            await retinue.run(hurt(), "Go.")

    asyncio.run(main())
"""
POINTS = ("before the plan", "after the plan", "between two files", "before branches go")


def hurt() -> Agent:
    """The second change touches the first: merged again on top of both it would be a conflict."""
    result = call("write", path="new.txt", content="new\n")
    return crew([edit(2, "one\nmore")], [edit(4, "two")], [result])


@pytest.mark.parametrize("point", POINTS)
def test_killed_in_the_middle_of_a_merge_nothing_is_lost_and_nothing_done_twice(
    project: Path, tmp_path: Path, point: str
) -> None:
    store = tmp_path / "r.db"
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DIES), str(project), str(store), point],
        check=False,
        timeout=SECONDS,
    )
    assert process.returncode == -signal.SIGKILL
    assert len(branches(project)) == 3, "nothing is dropped before it is merged"

    async def main() -> Outcome:
        async with Retinue(store, workspace=project, limits=FREE, agents=[hurt()]) as retinue:
            (run,) = [line.id async for line in retinue.runs()]
            outcome = await retinue.wait(run)
            assert outcome is not None
            return outcome

    outcome = asyncio.run(main())
    text = (project / "a.txt").read_text()
    assert text.startswith("line 1\none\nmore\nline 3\ntwo\nline 5\n")
    assert (project / "new.txt").read_text() == "new\n"
    assert outcome.text.count("writer 0: merged") == 1 and "NOT merged" not in outcome.text
    assert branches(project) == [] and is_clean(project, store)


def test_a_merge_that_fails_by_a_defect_leaves_the_branches_and_says_so(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def defect(*args: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("retinue.sandbox.writer_merges.plan_merges", defect)
    outcome = run(crew([edit(2, "a")], [edit(10, "b")]), project, tmp_path / "r.db")
    assert outcome.state == "completed" and "not merged: ZeroDivisionError: ours" in outcome.text
    assert len(branches(project)) == 2
    assert (project / "a.txt").read_text() == LINES
