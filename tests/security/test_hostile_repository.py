"""Repositories whose settings name commands, and repositories that are others in disguise: nothing
that they name is run, and nothing outside of them is read or written, by copies for isolated runs
and by the tool `git`."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.errors import RetinueError
from retinue.sandbox import git_copy
from retinue.sandbox.unsandboxed import Unsandboxed
from retinue.sandbox.worktree import Worktrees
from retinue.testing import call
from retinue.tools.base import ToolResult
from retinue.tools.builtin.git import GitTool
from retinue.tools.builtin.run_processes import Processes
from tests.cli.private_home import private_home
from tests.needs import needs
from tests.security.holes import git
from tests.tools.builtin.web_support import caller

pytestmark = needs("git")

# `{ran}` becomes a command that leaves a file outside of the repository and passes its input on.
SETTINGS: dict[str, dict[str, str]] = {
    "smudge": {"filter.x.smudge": "{ran}"},
    "clean": {"filter.x.clean": "{ran}"},
    "process": {"filter.x.process": "{ran}", "filter.x.required": "true"},
    "fsmonitor": {"core.fsmonitor": "{ran}", "core.fsmonitorHookVersion": "2"},
    "hooks": {"core.hooksPath": "{hooks}"},
    "ssh": {"core.sshCommand": "{ran}", "core.gitProxy": "{ran}", "core.askPass": "{ran}"},
    "pager": {
        "core.pager": "{ran}",
        "pager.log": "{ran}",
        "pager.status": "{ran}",
        "core.editor": "{ran}",
    },
    "diff": {"diff.external": "{ran}", "diff.x.textconv": "{ran}", "diff.x.command": "{ran}"},
    "merge": {"merge.x.driver": "{ran}", "merge.default": "x"},
    "credentials": {"credential.helper": "!{ran}", "credential.https://a.example.helper": "!{ran}"},
    "signatures": {
        "gpg.program": "{ran}",
        "gpg.ssh.program": "{ran}",
        "gpg.format": "ssh",
        "commit.gpgSign": "true",
        "user.signingKey": "key::x",
        "log.showSignature": "true",
    },
    "alias": {
        f"alias.{name}": "!{ran}"
        for name in ("log", "status", "read-tree", "add", "update-ref", "diff-tree")
    },
    "include": {"include.path": "{include}"},
    "include if": {
        "includeIf.gitdir:**.path": "{include}",
        "includeIf.onbranch:**.path": "{include}",
    },
    "remote": {
        "remote.origin.url": "ext::sh -c {ran}",
        "remote.origin.uploadpack": "{ran}",
        "remote.origin.promisor": "true",
        "remote.origin.partialCloneFilter": "blob:none",
        "protocol.ext.allow": "always",
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
    },
    "vcs": {
        "remote.origin.vcs": "ext",
        "remote.origin.promisor": "true",
        "protocol.allow": "always",
    },
    "submodule": {
        "submodule.sub.update": "!{ran}",
        "submodule.recurse": "true",
        "submodule.sub.active": "true",
    },
    "worktree settings": {"extensions.worktreeConfig": "true", "core.repositoryFormatVersion": "1"},
    "other commands": {
        "core.alternateRefsCommand": "{ran}",
        "uploadpack.packObjectsHook": "{ran}",
        "interactive.diffFilter": "{ran}",
        "sequence.editor": "{ran}",
        "trailer.x.command": "{ran}",
        "maintenance.auto": "true",
        "gc.auto": "1",
        "init.templateDir": "{hooks}",
    },
}
HOOKS = (
    *(
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-commit",
        "post-commit",
        "pre-auto-gc",
    ),
    *(
        "fsmonitor-watchman",
        "sendemail-validate",
        "prepare-commit-msg",
        "commit-msg",
        "post-rewrite",
        "proc-receive",
    ),
)
LOOKS = (
    *(
        ["status"],
        ["status", "-v"],
        ["diff"],
        ["diff", "--cached", "-p"],
        ["log", "-p", "--format=%G? %s"],
        ["show"],
    ),
    *(
        ["blame", "a.txt"],
        ["branch", "-vv"],
        ["ls-files", "-m", "-o", "--eol"],
        ["log", "--all", "-p", "-m"],
    ),
)


def make(top: Path, path: Path, *names: str) -> None:
    """A repository with some of the settings, in which everything is done by attributes."""
    command = f"sh -c 'touch {path}; cat' x"
    hooks = top.parent / "hooks"
    hooks.mkdir(exist_ok=True)
    top.mkdir(exist_ok=True)
    for name in HOOKS:
        (hooks / name).write_text(f"#!/bin/sh\ntouch {path}\n")
        (hooks / name).chmod(0o755)
    include = top.parent / "include"
    include.write_text(f'[filter "x"]\n smudge = "{command}"\n clean = "{command}"\n')
    attributes = "* filter=x diff=x merge=x\n*.slow working-tree-encoding=UTF-16\n"
    git(top, "init", "-q", "-b", "main")
    (top / ".gitattributes").write_text(attributes)
    (top / ".gitmodules").write_text('[submodule "sub"]\n path = sub\n url = ./x\n')
    (top / "a.txt").write_text("one\n")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    git(top, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    git(top, "commit", "-qm", "with a submodule")
    (top / ".git/info/attributes").write_text(attributes)
    shutil.copytree(hooks, top / ".git/hooks", dirs_exist_ok=True)
    (top / ".git/config.worktree").write_text(include.read_text())
    text = {"ran": command, "hooks": str(hooks), "include": str(include)}
    for name in names:
        for key, value in SETTINGS[name].items():
            git(top, "config", key, value.format(**text))
    path.unlink(missing_ok=True)


def is_hostile(top: Path, path: Path) -> bool:
    """Whether a git that obeys the repository runs something: else a test would prove nothing."""
    for words in (
        ["checkout", "-qf", "HEAD"],
        ["worktree", "add", "-q", "-f", str(top.parent / "w")],
        ["diff"],
    ):
        (top / "a.txt").write_text("other\n")
        subprocess.run(
            ["git", "-C", str(top), *words],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
    was = path.exists()
    path.unlink(missing_ok=True)
    shutil.rmtree(top.parent / "w", ignore_errors=True)
    return was


async def look(top: Path, state: Path, *, is_bare: bool) -> list[str]:
    processes = Processes(state, sandbox=Unsandboxed(unsafe_no_sandbox=True) if is_bare else None)
    tool, texts = GitTool(processes), []
    try:
        for words in LOOKS:
            (top / "a.txt").write_text(f"{len(texts)}\n")
            answer = await tool.run(replace(caller(), root=str(top)), {"args": list(words)})
            assert isinstance(answer, ToolResult)
            texts.append(answer.text)
    finally:
        await processes.close()
    return texts


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_nothing_that_a_repository_names_is_run_for_a_copy(tmp_path: Path, name: str) -> None:
    top, path = tmp_path / "repository", tmp_path / "ran"
    make(top, path, name)

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(top)))
        assert (copy / "a.txt").read_text() == "one\n"
        (copy / "a.txt").write_text("two\n")
        (copy / "new.slow").write_bytes(b"odd")
        changes = await trees.changes("r1", "task")
        assert changes is not None and changes.files == 2 and b"+two" in changes.diff
        await trees.close("r1", "task")

    asyncio.run(main())
    assert not path.exists()
    assert git(top, "-c", "filter.x.smudge=", "cat-file", "blob", "retinue/run-r1:a.txt") == "two\n"


@pytest.mark.parametrize("is_bare", [False, True])
@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_nothing_that_a_repository_names_is_run_to_look_at_it(
    tmp_path: Path, name: str, is_bare: bool
) -> None:
    if not is_bare and shutil.which("bwrap") is None:
        pytest.skip("bwrap is missing, so this was not tested: install the package bubblewrap")
    top, path = tmp_path / "repository", tmp_path / "ran"
    make(top, path, name)
    texts = asyncio.run(look(top, tmp_path / "state", is_bare=is_bare))
    assert not path.exists()
    assert "a.txt" in texts[0] and "+2" in texts[2], texts


@pytest.mark.parametrize(
    "name", ["smudge", "clean", "process", "fsmonitor", "hooks", "include", "worktree settings"]
)
def test_those_repositories_are_hostile(tmp_path: Path, name: str) -> None:
    make(tmp_path / "repository", tmp_path / "ran", name)
    assert is_hostile(tmp_path / "repository", tmp_path / "ran")


def gitdir_file(top: Path, other: Path) -> None:
    shutil.rmtree(top / ".git")
    (top / ".git").write_text(f"gitdir: {other}/.git\n")


def linked_git(top: Path, other: Path) -> None:
    shutil.rmtree(top / ".git")
    (top / ".git").symlink_to(other / ".git")


def commondir(top: Path, other: Path) -> None:
    (top / ".git/commondir").write_text(f"{other}/.git\n")


def worktree_setting(top: Path, other: Path) -> None:
    git(top, "config", "core.worktree", str(other))


def linked_reference(top: Path, other: Path) -> None:
    (top / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
    (top / ".git/refs/heads/main").unlink()
    (top / ".git/refs/heads/main").symlink_to(other / ".git/refs/heads/main")


def linked_references(top: Path, other: Path) -> None:
    (top / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
    shutil.rmtree(top / ".git/refs")
    (top / ".git/refs").symlink_to(other / ".git/refs")


def linked_objects(top: Path, other: Path) -> None:
    shutil.rmtree(top / ".git/objects")
    (top / ".git/objects").symlink_to(other / ".git/objects")


def linked_branches(top: Path, other: Path) -> None:
    (top / ".git/refs/heads/retinue").symlink_to(other)


def linked_worktrees(top: Path, other: Path) -> None:
    (top / ".git/worktrees").symlink_to(other)


def bare_inside(top: Path, other: Path) -> None:
    shutil.copytree(other / ".git", top, dirs_exist_ok=True)
    shutil.rmtree(top / ".git")


@pytest.mark.parametrize(
    "disguise",
    [
        *(
            gitdir_file,
            linked_git,
            commondir,
            linked_reference,
            linked_references,
            linked_objects,
            linked_branches,
        ),
        *(linked_worktrees, bare_inside, worktree_setting),
    ],
)
def test_a_repository_is_not_another_one_in_disguise(tmp_path: Path, disguise: Any) -> None:
    other, top = tmp_path / "other", tmp_path / "repository"
    for path in (other, top):
        path.mkdir()
        git(path, "init", "-q", "-b", "main")
        (path / "a.txt").write_text("private\n" if path == other else "one\n")
        git(path, "add", ".")
        git(path, "commit", "-qm", "first")
    before = sorted(str(p) for p in other.rglob("*"))
    disguise(top, other)
    text = ""

    async def main() -> None:
        nonlocal text
        trees = Worktrees(tmp_path / "trees")
        try:
            copy = Path(await trees.open("r1", str(top)))
            text = (copy / "a.txt").read_text()
            (copy / "b.txt").write_text("new\n")
        except RetinueError as error:
            assert str(tmp_path) in str(error)
        await trees.close("r1", "task")
        text += "".join(await look(top, tmp_path / "state", is_bare=True))

    asyncio.run(main())
    assert "private" not in text
    assert sorted(str(p) for p in other.rglob("*")) == before


def test_a_copy_holds_what_is_stored_and_the_users_own_list_of_ignored_files_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, top = tmp_path / "home", tmp_path / "repository"
    home.mkdir()
    (home / "ignored").write_text("*.swp\n")
    monkeypatch.setenv("HOME", str(home))
    git_copy._ignored.clear()
    top.mkdir()
    git(top, "init", "-q", "-b", "main")
    git(top, "config", "core.autocrlf", "true")
    (top / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (top / "big.bin").write_text(pointer)
    (top / "a.txt").write_text("one\n")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    filters = f'[filter "lfs"]\n smudge = touch {home}/ran\n clean = touch {home}/ran\n'
    (home / ".gitconfig").write_text(f"[core]\n excludesFile = ~/ignored\n{filters}")

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(top)))
        assert (copy / "big.bin").read_text() == pointer
        assert (copy / "a.txt").read_bytes() == b"one\r\n"
        assert await trees.changes("r1", "task") is None
        (copy / "x.swp").write_text("x")
        assert await trees.changes("r1", "task") is None
        (copy / "b.txt").write_bytes(b"two\r\n")
        changes = await trees.changes("r1", "task")
        assert changes is not None and changes.files == 1
        assert "first" in git(copy, "log") and "task" in git(copy, "log", "-1")
        await trees.close("r1", "task")

    asyncio.run(main())
    git_copy._ignored.clear()
    assert not (home / "ran").exists()
    assert git(top, "cat-file", "blob", "retinue/run-r1:b.txt") == "two\n"
    assert git(top, "worktree", "list").count("\n") == 1


AGENT = {
    "one": {
        "description": "d",
        "prompt": "p",
        "isolation": "worktree",
        "tools": ["Write", "Read", "git"],
    }
}


@needs("bwrap")
@pytest.mark.parametrize(
    "names", [("smudge", "clean"), ("process",), ("hooks", "fsmonitor", "include", "diff")]
)
def test_an_untrusted_project_runs_nothing_for_an_isolated_agent(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    path = tmp_path / "ran"

    def model(request: Any) -> Any:
        n = sum(type(m).__name__ == "AssistantMessage" for m in request.messages)
        turns = [
            call("git", args=["status"]),
            call("write", path="new.txt", content="precious\n"),
            call("git", args=["diff"]),
        ]
        return turns[n] if n < len(turns) else "Done."

    with private_home(tmp_path, model) as home:
        (home.project / ".git").rmdir()
        make(home.project, path, *names)
        result = home.real("run", "--yolo", "--agents", json.dumps(AGENT), "--agent", "one", "go")
        assert result.returncode == 0 and "Done." in result.stdout, result.stderr
        (branch,) = git(
            home.project, "branch", "--list", "retinue/*", "--format=%(refname:short)"
        ).split()
        assert git(home.project, "cat-file", "blob", f"{branch}:new.txt") == "precious\n"
        assert not path.exists()
        home.ok("host", "stop")
    assert not path.exists()
