"""Hooks and settings of git that do not lie beside the `.git` of the workspace: no command changes
them either."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.testing import call
from tests.needs import needs
from tests.security.holes import git, make_repository
from tests.security.own_state import Machine, hostile, machine, provider, said

HOOK, SETTINGS = "#!/bin/sh\n# of the user\n", "[alias]\n"
CHANGE = """
cd {where}
echo evil >> hooks/pre-commit; echo evil > hooks/post-commit; rm -rf hooks; mv hooks away
mkdir later; echo evil > later/x
echo '[core]' >> team.cfg; rm team.cfg; echo the attack has ended
"""


def play(result: Machine, cwd: Path, where: str, *options: str) -> str:
    with provider(hostile(call("shell", command=CHANGE.format(where=where)))) as env:
        return said(
            result.run("-m", "retinue", "run", "--yolo", "-p", *options, "go", cwd=cwd, **env)
        )


def unharmed(tools: Path) -> None:
    assert {path.name: path.read_text() for path in (tools / "hooks").iterdir()} == {
        "pre-commit": HOOK
    }
    assert (tools / "team.cfg").read_text() == SETTINGS
    assert not (tools / "later").exists() and not (tools / "away").exists()


def repository(top: Path, tools: str) -> Path:
    make_repository(top)
    (top / tools / "hooks").mkdir(parents=True)
    (top / tools / "hooks/pre-commit").write_text(HOOK)
    (top / tools / "team.cfg").write_text(SETTINGS)
    git(top, "config", "core.hooksPath", f"{tools}/hooks")
    git(top, "config", "--add", "include.path", f"../{tools}/team.cfg")
    git(top, "config", "--add", "include.path", f"../{tools}/later")
    return top


@needs("bwrap", "git")
def test_those_of_a_repository_above_the_workspace() -> None:
    with machine("this user") as result:
        top = repository(result.home / "work/big", "part/tools")
        assert "the attack has ended" in play(result, top / "part", "tools")
        unharmed(top / "part/tools")


@needs("bwrap", "git")
def test_those_in_a_worktree_of_the_user() -> None:
    with machine("this user") as result:
        top = repository(result.home / "work/big", "tools")
        git(top, "add", "-A")
        git(top, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "tools")
        git(top, "-c", "core.hooksPath=/dev/null", "worktree", "add", "-q", "../feature")
        git(top, "config", "--unset-all", "include.path")
        git(top, "config", "--add", "include.path", f"{result.home}/work/feature/tools/team.cfg")
        git(top, "config", "--add", "include.path", f"{result.home}/work/feature/tools/later")
        assert "the attack has ended" in play(result, result.home / "work/feature", "tools")
        unharmed(result.home / "work/feature/tools")


@needs("bwrap", "git")
@pytest.mark.parametrize("cwd", ["big", "shared"])
def test_those_in_another_directory_that_was_given(cwd: str) -> None:
    with machine("this user") as result:
        work = result.home / "work"
        top = repository(work / "big", "../shared")
        other = {"big": work / "shared", "shared": top}[cwd]
        assert "the attack has ended" in play(
            result, work / cwd, f"{work}/shared", "--add-dir", str(other)
        )
        unharmed(work / "shared")
