"""What runs in copies of their own leave behind is listed, shown and merged by commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

from retinue.testing import call
from tests.cli.private_home import MODEL, Llm, PrivateHome
from tests.cli.terminal import terminal
from tests.needs import needs

pytestmark = needs("git")
CODER = {"coder": {"description": "codes", "prompt": "Code.", "isolation": "worktree"}}


def git(folder: Path, *arguments: str) -> str:
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    process = subprocess.run(
        ["git", *who, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return process.stdout


def project(home: PrivateHome) -> Path:
    folder = home.project
    (folder / ".git").rmdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def worked(home: PrivateHome, llm: Llm) -> None:
    flags = ("--agent", "coder", "--agent-file", json.dumps(CODER), "--yolo", "--model", MODEL)
    home.ok("run", *flags, "Change it.", env=llm.env)


def test_a_branch_is_listed_shown_and_merged_after_a_question(tmp_path: Path) -> None:
    with Llm([call("edit", path="a.txt", old="one", new="two"), "Changed."]) as llm:
        home = PrivateHome(tmp_path)
        try:
            folder = project(home)
            worked(home, llm)
            (branch,) = json.loads(home.ok("diff", "--json"))
            assert branch["branch"].startswith("retinue/") and branch["state"] == "kept"
            result = home.run("diff")
            assert "-one\n+two" in result.stdout, (result, branch)
            refused = home.run("merge", "latest")
            assert refused.returncode == 2 and "--yes" in refused.stderr
            assert (folder / "a.txt").read_text() == "one\n", "nobody was asked"
            with terminal(tmp_path) as screen:
                screen.retinue("merge", "latest", env={**home.env, **llm.env}, cwd=folder)
                screen.until("[y/N]")
                screen.type("y\n")
                assert screen.code() == 0 and "1 of 1 merged" in screen.text()
            assert (folder / "a.txt").read_text() == "two\n"
            assert git(folder, "branch", "--list", "retinue/*") == ""
            again = home.run("merge", "latest", "--yes")
            assert again.returncode == 0 and "Nothing of" in again.stderr
        finally:
            home.close()


def test_a_conflict_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    with Llm([call("edit", path="a.txt", old="one", new="two"), "Changed."]) as llm:
        home = PrivateHome(tmp_path)
        try:
            folder = project(home)
            worked(home, llm)
            (folder / "a.txt").write_text("mine\n")
            result = home.run("merge", "latest", "--yes")
            assert result.returncode == 1 and "has 1 conflict in a.txt" in result.stderr
            assert (folder / "a.txt").read_text() == "mine\n"
            ((first, second),) = re.findall(r"Resolve: (.*)\n +(.*)", result.stderr)
            who = {
                f"GIT_{x}_{y}": "a@b" for x in ("AUTHOR", "COMMITTER") for y in ("NAME", "EMAIL")
            }
            env = {"HOME": str(folder), "PATH": os.environ["PATH"], **who}
            tried = subprocess.run(
                ["sh", "-c", f"{first}; {second}"],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
            )
            assert "CONFLICT (content): Merge conflict in a.txt" in tried.stdout, tried
            assert (
                "<<<<<<< HEAD\nmine\n=======\ntwo\n>>>>>>> retinue/"
                in (folder / "a.txt").read_text()
            ), "git has begun the merge that a person ends"
        finally:
            home.close()
