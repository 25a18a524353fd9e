"""Sub-agents that change files side by side, through the installed program."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.private_home import SECONDS, PrivateHome, private_home
from tests.cli.terminal import terminal
from tests.needs import needs

pytestmark = needs("git")
LINES = "".join(f"line {n}\n" for n in range(1, 21))
RUN = ("run", "--permission-mode", "acceptEdits")


def edit(n: int, text: str, name: str = "a.txt") -> Any:
    return call("edit", path=name, old=f"line {n}\n", new=f"{text}\n")


class Writers:
    """A lead that gives each script to a sub-agent of its own, in one call; those named in `gated`
    go on after their first reply when the test lets them."""

    def __init__(self, *scripts: list[Any], gated: tuple[int, ...] = ()) -> None:
        self.scripts, self.gated = scripts, gated
        self.let, self.reached = threading.Event(), threading.Event()
        self.at_gate: set[int] = set()
        self.heard: list[str] = []
        self.tools: Any = ()

    async def __call__(self, request: Any) -> Any:
        first = request.messages[0].text
        if first.startswith("part"):
            n, turn = int(first.split()[1]), request.turn
            if n in self.gated and turn == 1:
                self.at_gate.add(n)
                self.reached.set()
                await asyncio.to_thread(self.let.wait, SECONDS)
            script = self.scripts[n]
            return script[turn] if turn < len(script) else f"wrote {n}"
        self.heard, self.tools = [m.text for m in request.messages], request.tools
        if request.turn == 0:
            tasks = [
                {"task_id": f"Part {n}", "prompt": f"part {n}", "tools": ["edit", "write"]}
                for n in range(len(self.scripts))
            ]
            return call("delegate_tasks", mode="parallel", tasks=tasks)
        return "\n".join(self.heard[1:])


def git(where: Path, *args: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", *who, "-C", str(where), *args], check=True, capture_output=True, text=True
    ).stdout


@contextmanager
def project(folder: Path, script: Writers, *, is_git: bool = True) -> Iterator[PrivateHome]:
    with private_home(folder, script) as home:
        (home.project / ".git").rmdir()
        (home.project / "a.txt").write_text(LINES)
        if is_git:
            git(home.project, "init", "-q", "-b", "main")
            git(home.project, "add", ".")
            git(home.project, "commit", "-qm", "first")
        try:
            yield home
        finally:
            script.let.set()


def lines(home: PrivateHome) -> list[str]:
    return (home.project / "a.txt").read_text().splitlines()


def branches(home: PrivateHome) -> list[str]:
    form = ("--format", "%(refname:short)")
    return git(home.project, "branch", "--list", "retinue/*", *form).split()


def shown(home: PrivateHome, branch: str) -> str:
    return git(home.project, "show", f"{branch}:a.txt")


def test_three_writers_in_a_dirty_tree_change_one_file_and_make_others(tmp_path: Path) -> None:
    result = call("write", path="new.txt", content="made\n")
    script = Writers([edit(2, "zero")], [edit(10, "one")], [edit(18, "two"), result])
    with project(tmp_path, script) as home:
        (home.project / "a.txt").write_text(LINES.replace("line 6\n", "by hand\n"))
        (home.project / "notes.txt").write_text("untracked\n")
        text = home.ok(*RUN, "Go.")
        assert [lines(home)[n] for n in (1, 5, 9, 17)] == ["zero", "by hand", "one", "two"]
        assert (home.project / "new.txt").read_text() == "made\n"
        assert (home.project / "notes.txt").read_text() == "untracked\n"
        assert "- Part 2: merged (2 files, +2 -1: a.txt, new.txt)" in text
        assert branches(home) == []
        status = git(home.project, "status", "--porcelain").splitlines()
        assert status == [" M a.txt", "?? new.txt", "?? notes.txt"]
        assert len(git(home.project, "worktree", "list").splitlines()) == 1


def test_a_conflict_is_shown_to_the_parent_and_kept_on_a_branch(tmp_path: Path) -> None:
    script = Writers([edit(2, "mine")], [edit(2, "yours")], [edit(18, "two")])
    with project(tmp_path, script) as home:
        result = home.run(*RUN, "Go.")
        text = result.stdout
        (branch,) = branches(home)
        notes = [line.partition(" ")[2] for line in result.stderr.splitlines()]
        assert f"! Part 1: conflict in a.txt. Not merged: {branch}" in notes
        short = home.runs()[0]["short"]
        assert result.stderr.splitlines()[-3:] == [
            f"  merge   Part 1: conflict in a.txt; its changes are on {branch}",
            "  files   1 changed, +2 -2, merged. See: git diff",
            f"          See: retinue diff {short}. Try again: retinue merge {short}",
        ]
        tree = home.ok("ps", "--tree").splitlines()
        assert "conflict in a.txt, not merged" in tree[2], "in the live view too"
        assert branch.startswith("retinue/part-1-")
        assert "- Part 1: NOT merged, conflict in a.txt" in text and branch in text
        lines_shown = ("<<<<<<< your directory", "mine", "=======", "yours", ">>>>>>> Part 1")
        assert "\n".join(f"    {line}" for line in lines_shown) in text
        assert (lines(home)[1], lines(home)[17]) == ("mine", "two")
        assert "yours" in git(home.project, "show", f"{branch}:a.txt")


def test_a_merge_without_anything_removed_is_told_too(tmp_path: Path) -> None:
    calls = [[call("write", path=f"new{n}.txt", content="made\n")] for n in range(2)]
    with project(tmp_path, Writers(*calls)) as home:
        result = home.run(*RUN, "--output-format", "json", "Go.")
        assert result.returncode == 0, result.stderr
        merges = json.loads(result.stdout)["merges"]
        assert [(m["label"], m["state"], m["added"], m["removed"]) for m in merges] == [
            ("Part 0", "merged", 1, 0),
            ("Part 1", "merged", 1, 0),
        ]
        assert "  files   2 changed, +2 -0, merged. See: git diff" in result.stderr.splitlines()


def test_outside_of_git_one_writes_after_the_other(tmp_path: Path) -> None:
    script = Writers([edit(2, "zero")], [edit(3, "one")], [edit(4, "two")])
    with project(tmp_path, script, is_git=False) as home:
        text = home.ok(*RUN, "Go.")
        assert lines(home)[:5] == ["line 1", "zero", "one", "two", "line 5"]
        assert text.count("(completed)") == 3 and "merged" not in text


def test_a_setting_has_writers_take_turns_and_the_tool_says_so(tmp_path: Path) -> None:
    script = Writers([edit(2, "zero")], [edit(3, "one")])
    with project(tmp_path, script) as home:
        home.ok(*RUN, "Go.", env={"RETINUE_AGENTS_WRITERS": "turns"})
        assert lines(home)[:4] == ["line 1", "zero", "one", "line 4"]
        (tool,) = [t for t in script.tools if t.name == "delegate_tasks"]
        assert tool.description.endswith("Sub-agents that can edit files take turns.")


def test_what_a_cancelled_writer_did_stays_on_its_branch_and_the_others_are_merged(
    tmp_path: Path,
) -> None:
    script = Writers([edit(2, "zero")], [edit(10, "half")], gated=(1,))
    with project(tmp_path, script) as home:
        home.ok(*RUN, "--background", "Go.")
        assert script.reached.wait(SECONDS)
        (child,) = [r for r in home.runs() if r["label"] == "Part 1"]
        home.ok("cancel", child["id"])
        home.ok("wait", "latest")
        assert (lines(home)[1], lines(home)[9]) == ("zero", "line 10")
        (branch,) = branches(home)
        assert "half" in git(home.project, "show", f"{branch}:a.txt")
        text = "not merged: it did not complete its task. Its changes (1 file, +1 -1) are on branch"
        assert f"{text} {branch}" in " ".join(home.ok("show", "latest").split())


def test_what_is_left_is_listed_with_its_conflicts_and_merged_as_far_as_it_fits(
    tmp_path: Path,
) -> None:
    script = Writers([edit(2, "mine")], [edit(2, "yours")], [edit(18, "two")], gated=(0, 1, 2))
    with project(tmp_path, script) as home, terminal(tmp_path) as screen:
        home.ok(*RUN, "--background", "Go.")
        home.until(lambda: len(script.at_gate) == 3)
        short = next(r["short"] for r in home.runs() if not r["parent"])
        home.run("cancel", short)
        home.run("wait", short)
        names = branches(home)
        home.until(lambda: home.ok("diff", short, "--json").count('"files":1') == 3)
        listed = home.run("diff", short)
        size = "1 file  +1 -1"
        assert [" ".join(text.split()) for text in listed.stdout.splitlines()] == [
            f"Part 0 {names[0]} {' '.join(size.split())} merges cleanly",
            f"Part 1 {names[1]} {' '.join(size.split())} 1 conflict",
            "a.txt:2 was also changed by Part 0",
            f"Part 2 {names[2]} {' '.join(size.split())} merges cleanly",
        ]
        merge = f"Merge: retinue merge {short} [AGENT...]"
        assert listed.stderr.splitlines()[-1] == f"See one: retinue diff {short}/Part 2   {merge}"
        assert lines(home)[1] == "line 2", "nothing is changed by looking"
        screen.retinue("merge", short, env=home.env, cwd=home.project)
        question = "Merge 2 branches into your files (2 files, +2 -2)? Part 1 is not merged. [y/N]"
        screen.until(lambda text: question in " ".join(text.split()))
        screen.type("y\n")
        assert screen.code() == 1
        assert "✓ done: 2 of 3 merged, their branches removed. Review: git diff" in screen.text()
        assert "! Part 1 has 1 conflict in a.txt. Nothing of it was changed." in screen.text()
        assert (lines(home)[1], lines(home)[17]) == ("mine", "two")
        assert branches(home) == [names[1]]
        assert "a.txt:2 was also changed in your files" in home.run("diff", short).stdout


def test_killed_between_the_commit_of_one_and_the_merge_of_all_nothing_is_lost(
    tmp_path: Path,
) -> None:
    script = Writers([edit(2, "zero")], [edit(10, "one")], gated=(1,))
    with project(tmp_path, script) as home:
        home.ok(*RUN, "--background", "Go.")
        assert script.reached.wait(SECONDS)
        home.until(lambda: any("zero" in shown(home, branch) for branch in branches(home)))
        assert lines(home)[1] == "line 2"
        os.kill(home.host_pid(), signal.SIGKILL)
        script.let.set()
        home.ok("wait", "latest")
        assert (lines(home)[1], lines(home)[9]) == ("zero", "one")
        assert branches(home) == []
