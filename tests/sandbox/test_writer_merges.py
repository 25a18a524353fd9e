"""Branches of writers back into the files of a directory: in order, whole or not at all, and again
after a crash without doing anything twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.core.merges import BranchMerge, WriterCopy, branch_name, merge_note
from retinue.sandbox import branch_merge, working_tree
from retinue.sandbox.worktree import Worktrees
from retinue.sandbox.writer_merges import WriterMerges, snapshot
from tests.needs import needs

pytestmark = needs("git")
LINES = "".join(f"line {n}\n" for n in range(1, 31))


def git(where: Path, *args: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", *who, "-C", str(where), *args], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    (top / "sub").mkdir(parents=True)
    (top / "a.txt").write_text(LINES)
    (top / "sub" / "b.txt").write_text("two\n")
    (top / ".gitignore").write_text("*.log\n")
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    return top


Work = Callable[[Path], object]


class Bench:
    """Writers at work: each changes its copy, then all of them are merged."""

    def __init__(self, folder: Path, top: Path) -> None:
        self.top, self.trees = top, Worktrees(folder / "trees")
        self.merges = WriterMerges(self.trees)

    async def work(self, *works: Work, unwanted: tuple[int, ...] = ()) -> list[WriterCopy]:
        base = await snapshot(str(self.top))
        copies = []
        for n, work in enumerate(works):
            run = f"0000-run{n}"
            place = Path(await self.trees.open(run, str(self.top), f"Task {n}!", base))
            work(place)
            copies.append(
                WriterCopy(
                    run=run,
                    label=f"Task {n}!",
                    base=base,
                    place=str(self.top),
                    is_wanted=n not in unwanted,
                )
            )
        return copies

    async def merge(self, copies: list[WriterCopy], key: str = "p.1") -> tuple[BranchMerge, ...]:
        return await self.merges.merge(key, copies, lambda place: False)

    def run(self, *works: Work, unwanted: tuple[int, ...] = ()) -> tuple[BranchMerge, ...]:
        async def main() -> tuple[BranchMerge, ...]:
            return await self.merge(await self.work(*works, unwanted=unwanted))

        return asyncio.run(main())

    def branches(self) -> list[str]:
        form = ("--format", "%(refname:short)")
        return git(self.top, "branch", "--list", "retinue/*", *form).split()


@pytest.fixture
def bench(tmp_path: Path, top: Path) -> Bench:
    return Bench(tmp_path, top)


def line(n: int, text: str, name: str = "a.txt") -> Work:
    def work(place: Path) -> None:
        path = place / name
        path.write_text(path.read_text().replace(f"line {n}\n", f"{text}\n"))

    return work


def test_three_writers_of_one_file_are_merged_in_order_and_their_branches_go(bench: Bench) -> None:
    merges = bench.run(line(2, "one"), line(15, "two"), line(28, "three"))
    assert [m.state for m in merges] == ["merged"] * 3
    text = (bench.top / "a.txt").read_text()
    assert [text.splitlines()[n] for n in (1, 14, 27)] == ["one", "two", "three"]
    assert bench.branches() == []
    assert git(bench.top, "status", "--porcelain") == " M a.txt\n", "nothing is staged or committed"
    assert git(bench.top, "log", "--format=%s").split() == ["first"]


def test_of_two_that_changed_the_same_lines_the_second_stays_on_its_branch(bench: Bench) -> None:
    merges = bench.run(line(2, "mine"), line(2, "yours"), lambda p: (p / "c.txt").write_text("c"))
    assert [m.state for m in merges] == ["merged", "conflict", "merged"]
    (branch,) = bench.branches()
    assert branch == merges[1].branch == branch_name("Task 1!", "0000-run1")
    assert branch.startswith("retinue/task-1-")
    assert merges[1].conflicts == ("a.txt",) and merges[1].places == ("a.txt:2",)
    assert "mine\n=======\nyours\n>>>>>>> Task 1!" in merges[1].hunks
    assert (bench.top / "a.txt").read_text().splitlines()[1] == "mine"
    assert "yours" in git(bench.top, "show", f"{branch}:a.txt")
    note = merge_note(merges)
    assert "Task 1!: NOT merged, conflict in a.txt" in note and branch in note


def test_the_lines_of_each_conflict_are_those_of_the_files_as_they_stand(bench: Bench) -> None:
    def several(text: str) -> Work:
        def work(place: Path) -> None:
            lines = (place / "a.txt").read_text().splitlines()
            lines[3:6], lines[20] = [f"{text} {n}" for n in range(3)], text
            (place / "a.txt").write_text("\n".join(lines) + "\n")

        return work

    merges = bench.run(several("mine"), several("yours"))
    assert merges[1].places == ("a.txt:4-6", "a.txt:21")


def test_changed_and_new_files_of_the_parent_are_in_the_copies_and_stay_its_own(
    bench: Bench,
) -> None:
    line(5, "changed before")(bench.top)
    git(bench.top, "add", "a.txt")
    line(6, "changed too")(bench.top)
    (bench.top / "new.txt").write_text("new\n")
    (bench.top / "x.log").write_text("ignored\n")

    def work(place: Path) -> None:
        assert "changed too" in (place / "a.txt").read_text()
        assert not (place / "x.log").exists()
        (place / "new.txt").write_text("new and changed\n")
        line(20, "changed by a writer")(place)

    merges = bench.run(work)
    assert [(m.state, m.files) for m in merges] == [("merged", 2)]
    text = (bench.top / "a.txt").read_text()
    assert all(texts in text for texts in ("changed before", "changed too", "changed by a writer"))
    assert (bench.top / "new.txt").read_text() == "new and changed\n"
    assert git(bench.top, "status", "--porcelain") == "MM a.txt\n?? new.txt\n"
    assert "changed by a writer" not in git(bench.top, "show", ":a.txt")


def test_removed_renamed_and_linked_files_and_their_modes_are_merged(bench: Bench) -> None:
    def work(place: Path) -> None:
        (place / "sub" / "b.txt").unlink()
        (place / "sub").rmdir()
        (place / "sub").write_text("a file now\n")
        (place / "tool").write_text("#!/bin/sh\n")
        (place / "tool").chmod(0o755)
        (place / "link").symlink_to("a.txt")
        (place / "deep" / "er").mkdir(parents=True)
        (place / "deep" / "er" / "x").write_text("x")

    os.chmod(bench.top / "a.txt", 0o600)
    merges = bench.run(work, line(3, "private"))
    assert [m.state for m in merges] == ["merged", "merged"]
    top = bench.top
    assert (top / "sub").read_text() == "a file now\n"
    assert os.access(top / "tool", os.X_OK) and os.readlink(top / "link") == "a.txt"
    assert (top / "deep" / "er" / "x").read_text() == "x"
    assert (top / "a.txt").stat().st_mode & 0o777 == 0o600, "who may read it stays as it was"


def test_what_a_writer_that_did_not_complete_has_changed_stays_on_its_branch(bench: Bench) -> None:
    merges = bench.run(line(2, "half"), line(9, "whole"), unwanted=(0,))
    assert [m.state for m in merges] == ["kept", "merged"]
    assert bench.branches() == [merges[0].branch]
    assert "half" not in (bench.top / "a.txt").read_text()


def test_who_changed_nothing_leaves_nothing(bench: Bench) -> None:
    merges = bench.run(lambda place: None)
    assert [m.state for m in merges] == ["empty"] and bench.branches() == []
    assert merge_note(merges) == ""


def test_what_git_ignores_in_a_copy_is_named_since_no_branch_holds_it(bench: Bench) -> None:
    def work(place: Path) -> None:
        (place / "out.log").write_text("x")
        (place / "sub" / "__pycache__").mkdir()
        (place / "sub" / "__pycache__" / "a.log").write_text("x")

    merges = bench.run(work, line(9, "whole"))
    assert [(m.state, m.ignored) for m in merges] == [("empty", ("out.log",)), ("merged", ())]
    assert "Not taken over, because git ignores it: out.log." in merge_note(merges)
    assert not (bench.top / "out.log").exists()


def test_a_file_that_programs_trust_is_not_changed_by_a_merge(bench: Bench) -> None:
    merges = bench.run(lambda place: (place / ".mcp.json").write_text("{}"))
    assert [m.state for m in merges] == ["kept"] and ".mcp.json is protected" in merges[0].why
    assert not (bench.top / ".mcp.json").exists() and bench.branches()


def test_line_ends_are_those_of_the_directory(bench: Bench) -> None:
    git(bench.top, "config", "core.autocrlf", "true")
    (bench.top / "a.txt").write_bytes(LINES.replace("\n", "\r\n").encode())

    def work(place: Path) -> None:
        path = place / "a.txt"
        path.write_bytes(path.read_bytes().replace(b"line 4\r\n", b"four\r\n"))

    assert [m.state for m in bench.run(work)] == ["merged"]
    assert b"four\r\nline 5\r\n" in (bench.top / "a.txt").read_bytes()


class Killed(BaseException):
    """As if the process had ended here."""


@pytest.mark.parametrize("after", ["plan", "first file", "files"])
def test_a_merge_that_was_cut_short_is_done_again_without_doing_it_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    put = working_tree._put
    n_put = 0

    def cut(*args: object) -> None:
        nonlocal n_put
        if after == "plan" or (after == "first file" and n_put):
            raise Killed
        n_put += 1
        put(*args)  # type: ignore[arg-type]

    async def drop(*args: object) -> None:
        raise Killed

    async def main() -> None:
        # The second change touches the first: merged again on top of both it would be a conflict.
        copies = await bench.work(
            line(2, "one\nmore"), line(4, "two"), lambda p: (p / "c.txt").write_text("c")
        )
        with monkeypatch.context() as patch:
            patch.setattr(working_tree, "_put", cut)
            patch.setattr("retinue.sandbox.writer_merges.drop_merged", drop)
            with pytest.raises(Killed):
                await bench.merge(copies)
        assert len(bench.branches()) == 3, "nothing is dropped before it is merged"
        again = Bench(bench.top.parent, bench.top)
        merges = await again.merge(copies)
        assert [m.state for m in merges] == ["merged"] * 3
        assert await again.merge(copies) == merges, "asked again, it says the same"

    asyncio.run(main())
    text = (bench.top / "a.txt").read_text()
    assert text.startswith("line 1\none\nmore\nline 3\ntwo\nline 5\n")
    assert (bench.top / "c.txt").read_text() == "c"
    assert bench.branches() == []


def test_what_somebody_changes_while_files_are_written_is_left_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = working_tree.change_files

    async def late(*args: object) -> list[str]:
        (bench.top / "a.txt").write_text("a person's\n")
        return await change(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(branch_merge, "change_files", late)
    (one,) = bench.run(line(2, "one"))
    assert one.state == "kept" and "a.txt changed meanwhile" in one.why
    assert (bench.top / "a.txt").read_text() == "a person's\n"
    assert bench.branches() == [one.branch]


def test_a_folder_that_is_a_link_elsewhere_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    async def main() -> tuple[BranchMerge, ...]:
        copies = await bench.work(lambda p: (p / "sub" / "b.txt").write_text("changed\n"))
        (bench.top / "sub" / "b.txt").rename(outside / "b.txt")
        (bench.top / "sub").rmdir()
        (bench.top / "sub").symlink_to(outside)
        return await bench.merge(copies)

    (one,) = asyncio.run(main())
    assert one.state in ("conflict", "kept")
    assert (outside / "b.txt").read_text() == "two\n"
    assert bench.branches() == [one.branch]


def test_plans_of_runs_that_have_ended_go(bench: Bench) -> None:
    bench.run(line(2, "one"))
    assert [p.name for p in bench.merges.folder.iterdir()] == ["p.1.0.json"]
    bench.merges.forget("p")
    assert list(bench.merges.folder.iterdir()) == []
