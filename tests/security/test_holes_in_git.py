"""Repositories that a command has prepared for the git of the host, or for the tool `git`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.errors import RetinueError
from retinue.sandbox import git_folders, git_process
from retinue.sandbox.worktree import Worktrees
from retinue.testing import call
from tests.cli.private_home import private_home
from tests.needs import needs
from tests.security.holes import git, make_repository, shown_by
from tests.security.prepared import ISOLATED, played, ready, turns

pytestmark = needs("git")
EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    top = make_repository(tmp_path / "other")
    (top / "private.txt").write_text("CANARY\n")
    git(top, "add", ".")
    git(top, "commit", "-qm", "private")
    return top


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


async def copied(top: Path, trees: Path, run: str = "r1") -> str:
    """The names in a copy, or why there is none."""
    try:
        return " ".join(sorted(os.listdir(await Worktrees(trees).open(run, str(top)))))
    except RetinueError as error:
        return str(error)


def borrowing(top: Path, other: Path) -> None:
    (top / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")


def borrowing_from_one_that_borrows(top: Path, other: Path) -> None:
    middle = top / ".git/middle/info"
    middle.mkdir(parents=True)
    (middle / "alternates").write_text(f"{other}/.git/objects\n")
    (top / ".git/objects/info/alternates").write_text("../middle\n")


def borrowing_by_a_link(top: Path, other: Path) -> None:
    (top / ".git/link").symlink_to(other / ".git/objects")
    (top / ".git/objects/info/alternates").write_text("../link\n")


def linking(top: Path, other: Path) -> None:
    for folder in (other / ".git/objects").iterdir():
        if (
            folder.name not in ("info", "pack")
            and not (top / ".git/objects" / folder.name).exists()
        ):
            (top / ".git/objects" / folder.name).symlink_to(folder)


def linking_a_pack(top: Path, other: Path) -> None:
    git(other, "repack", "-adq")
    for file in (other / ".git/objects/pack").iterdir():
        (top / ".git/objects/pack" / file.name).symlink_to(file)


@pytest.mark.parametrize(
    "reach",
    [borrowing, borrowing_from_one_that_borrows, borrowing_by_a_link, linking, linking_a_pack],
)
@pytest.mark.parametrize("is_known", [False, True])
def test_a_copy_is_never_one_of_another_repository(
    repository: Path,
    other: Path,
    tmp_path: Path,
    reach: Any,
    is_known: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a replacement that is a link, or by the hash of a commit that somebody knows; without a
    sandbox too."""
    monkeypatch.setattr(git_process, "_bwrap", lambda path: "")
    reach(repository, other)
    commit = git(other, "rev-parse", "HEAD").strip()
    if is_known:
        (repository / ".git/HEAD").write_text(f"{commit}\n")
    else:
        (repository / ".git/refs/replace").mkdir()
        own = git(repository, "rev-parse", "HEAD").strip()
        (repository / ".git/refs/replace" / own).symlink_to(other / ".git/refs/heads/main")
    assert "private.txt" not in asyncio.run(copied(repository, tmp_path / "trees"))


def test_replacements_of_the_repository_do_not_count(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "HEAD").strip()
    (repository / "b.txt").write_text("b\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "second")
    git(repository, "replace", "HEAD", first)
    assert "b.txt" in asyncio.run(copied(repository, tmp_path / "trees")).split()


@needs("bwrap")
def test_a_link_that_comes_late_leads_the_git_of_the_host_nowhere(
    repository: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After everything was looked at: objects of the repository, and files of the copy."""
    commit = git(other, "rev-parse", "HEAD").strip()
    pieces: list[bytes] = []
    true_run = git_process.run

    async def late(args: tuple[str, ...], environ: dict[str, str], **options: Any) -> bytes:
        if args[0] == "rev-parse" and not pieces:
            borrowing(repository, other)
            pieces.append(b"")
            for path in (f"{other}/private.txt", f"{repository}/a.txt"):
                try:
                    pieces.append(await true_run(("hash-object", "--", path), environ, **options))
                except RetinueError as error:
                    pieces.append(str(error).encode())
            with pytest.raises(RetinueError):
                await true_run(("cat-file", "-e", f"{commit}^{{commit}}"), environ, **options)
        return await true_run(args, environ, **options)

    monkeypatch.setattr("retinue.sandbox.git_repository.run", late)
    asyncio.run(copied(repository, tmp_path / "trees"))
    assert b"private.txt" in pieces[1] and len(pieces[2]) == 41


@needs("bwrap")
def test_a_command_prepares_no_copy_of_another_repository(tmp_path: Path, other: Path) -> None:
    plant = (
        f"echo {other}/.git/objects > .git/objects/info/alternates; mkdir -p .git/refs/replace; "
        f"ln -s {other}/.git/refs/heads/main .git/refs/replace/$(cat .git/refs/heads/main)"
    )
    model = turns(call("shell", command=plant))
    with private_home(tmp_path, lambda request: model(request)) as home:
        ready(home)
        played(home)
        model = turns(call("list"), call("read", path="private.txt"))
        assert "CANARY" not in "".join(played(home, "--agents", ISOLATED, "--agent", "one"))
        home.ok("host", "stop")


@pytest.mark.parametrize("is_linked", [False, True])
def test_the_host_adds_nothing_to_the_log_of_the_users_references(
    repository: Path, tmp_path: Path, is_linked: bool
) -> None:
    log, victim = repository / ".git/logs/HEAD", tmp_path / "victim"
    victim.write_text("precious\n")
    if is_linked:
        log.unlink()
        log.symlink_to(victim)
    before = log.read_text()

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        (Path(await trees.open("r1", str(repository))) / "new.txt").write_text("new\n")
        await trees.close("r1", "task")

    asyncio.run(main())
    assert shown_by(repository, "retinue/run-r1:new.txt") == "new\n"
    assert log.read_text() == before and victim.read_text() == "precious\n"


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_branch_without_changes_goes_and_all_others_stay(
    repository: Path, tmp_path: Path, is_packed: bool
) -> None:
    git(repository, "branch", "feature/x")
    git(repository, "tag", "-am", "v1", "v1")

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        await trees.open("r1", str(repository))
        assert git(repository, "branch", "--list", "retinue/run-r1")
        if is_packed:
            git(repository, "pack-refs", "--all")
        await trees.close("r1", "task")

    asyncio.run(main())
    assert git(repository, "for-each-ref", "--format=%(refname)").split() == [
        *("refs/heads/feature/x", "refs/heads/main", "refs/tags/v1")
    ]
    assert git(repository, "fsck", "--strict") == "" and git(repository, "status", "--short") == ""
    assert not (repository / ".git/refs/heads/retinue").exists()


@needs("bwrap")
def test_a_rule_on_files_is_not_got_round_by_the_hash_of_their_directory(tmp_path: Path) -> None:
    answers: dict[tuple[str, ...], str] = {}
    words: list[tuple[str, ...]] = []
    with private_home(
        tmp_path, lambda request: turns(*(call("git", args=list(w)) for w in words))(request)
    ) as home:
        top = ready(home)
        for name in ("secrets/deep/k", "secrets/key.txt", "sub/.env"):
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text("CANARY\n")
        git(top, "add", "-A", "-f")
        git(top, "commit", "-qm", "secrets")
        trees = [
            git(top, "rev-parse", f"HEAD:{name}").strip()
            for name in ("secrets", "sub", "secrets/key.txt")
        ]
        git(top, "tag", "tree", trees[0])
        names = (
            "HEAD:secrets",
            "HEAD:secrets/deep",
            "HEAD:sub",
            "HEAD^{tree}:secrets",
            "main:sub",
            "tree",
        )
        words += [("diff", EMPTY, name) for name in (*names, *trees)]
        words += [("diff", name, EMPTY) for name in (*names, *trees)]
        words += [
            ("diff", f"{EMPTY}..{trees[0]}"),
            ("diff", "-S", "C", EMPTY, trees[0]),
            ("diff", "--stat", trees[0]),
        ]
        words += [("diff", "--unified", "3", EMPTY, trees[0]), ("diff", "--cached", trees[0], "-p")]
        words += [
            ("show", name)
            for name in (*trees, f"{trees[0]}:key.txt", "tree:key.txt", "tree^{}:key.txt")
        ]
        words += [
            ("show", f"{trees[1]}:.env", "HEAD"),
            ("log", "-p", trees[0]),
            ("log", "-p", "--all", "tree"),
        ]
        words += [("blame", trees[0], "--", "key.txt"), ("blame", "HEAD", "--", "secrets/key.txt")]
        words += [
            ("show", "HEAD"),
            ("diff", EMPTY, "HEAD"),
            ("diff", "HEAD~1..HEAD", "--stat"),
            ("diff", "HEAD^!"),
        ]
        words += [("show", "HEAD:a.txt"), ("diff", "--diff-filter", "A", "HEAD~1", "HEAD")]
        rules = ("--disallowed-tools", "read(secrets/**)", "--disallowed-tools", "read(sub/.env)")
        answers.update(zip(words, played(home, *rules), strict=True))
        home.ok("host", "stop")
    assert [w for w, text in answers.items() if "CANARY" in text] == []
    assert "a.txt" in answers["diff", EMPTY, "HEAD"] and answers["show", "HEAD:a.txt"] == "one\n"


@needs("bwrap")
def test_git_shows_no_secrets_of_a_home_that_is_a_repository(tmp_path: Path) -> None:
    calls = [
        ("show", "HEAD:.netrc"),
        ("log", "-p", "--all"),
        ("show", "HEAD"),
        ("show", "HEAD:.Netrc"),
    ]
    calls += [
        ("diff", "HEAD"),
        ("blame", ".ssh/config"),
        ("diff", EMPTY, "HEAD"),
        ("show", "HEAD~1"),
    ]
    calls += [("show", "HEAD:notes.txt")]
    with private_home(tmp_path, turns(*(call("git", args=list(words)) for words in calls))) as home:
        top = Path(home.env["HOME"])
        (top / ".ssh").mkdir()
        for name in (".netrc", ".ssh/config", ".gitconfig", ".Netrc"):
            (top / name).write_text("# CANARY\n")
        (top / "notes.txt").write_text("plain\n")
        git(top, "init", "-q", "-b", "main")
        git(top, "add", "-f", ".netrc", ".ssh", ".gitconfig", ".Netrc", "notes.txt")
        git(top, "commit", "-qm", "dots")
        git(top, "commit", "-q", "--allow-empty", "-m", "more")
        result = home.real("run", "--yolo", "-p", "go", cwd=top)
        assert "CANARY" not in result.stdout and "plain" in result.stdout, (
            result.stdout,
            result.stderr,
        )
        home.run("host", "stop", cwd=top)


def test_no_copy_is_made_of_a_home_with_committed_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_repository(tmp_path / "home")
    (home / ".netrc").write_text("CANARY\n")
    git(home, "add", ".")
    git(home, "commit", "-qm", "netrc")
    monkeypatch.setenv("HOME", str(home))
    assert "No worktree was created" in asyncio.run(copied(home, tmp_path / "trees"))


@needs("bwrap")
def test_what_the_settings_of_git_name_in_the_workspace_is_protected(tmp_path: Path) -> None:
    hook = "#!/bin/sh\nexit 0\n"
    calls = [
        call("edit", path="tools/hooks/pre-commit", old="exit 0", new="touch ran"),
        call("write", path="tools/hooks/post-commit", content="touch ran\n"),
        call("write", path="conf/team", content='[core]\nfsmonitor = "touch ran; false"\n'),
        call("write", path="team", content='[core]\nfsmonitor = "touch ran; false"\n'),
        call(
            "shell",
            command="echo 'touch ran' >> tools/hooks/pre-commit; echo '[core] fsmonitor = x' >> "
            "team",
        ),
        call("write", path="tools/other", content="fine\n"),
    ]
    with private_home(tmp_path, turns(*calls)) as home:
        top = ready(home)
        for name in ("tools/hooks/pre-commit", "conf/team", "team"):
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(hook if "hooks" in name else "[alias]\n")
        (top / "tools/hooks/pre-commit").chmod(0o755)
        (top / "conf/first").write_text('[includeIf "onbranch:**"] path = team\n')
        git(top, "config", "core.hooksPath", "tools/hooks")
        git(top, "config", "include.path", "../conf/first")
        git(top, "config", "--add", "include.path", "../team")
        answers = played(home)
        home.ok("host", "stop")
        assert all("protected" in answer for answer in answers[:4]), answers
        assert (top / "tools/hooks/pre-commit").read_text() == hook and (
            top / "team"
        ).read_text() == "[alias]\n"
        assert (top / "tools/other").exists()


def test_a_folder_of_a_process_that_was_killed_goes_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_folders, "PLACES", (str(tmp_path),))
    script = (
        f"import os, signal\nfrom retinue.sandbox import git_folders\ngit_folders.PLACES = "
        f"({str(tmp_path)!r},)\n"
        "print(git_folders.make()[0], flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    rest = Path(killed.stdout.strip())
    assert rest.parent == tmp_path and rest.is_dir()
    mine, lock = git_folders.make()
    others = [
        tmp_path / "retinue-git-x",
        tmp_path / "retinue-git-1-abc",
        tmp_path / "retinue-git-2-abc",
    ]
    others[0].mkdir()
    others[1].mkdir()
    others[2].symlink_to(others[0])
    git_folders.sweep()
    assert not rest.exists() and os.path.isdir(mine) and all(path.exists() for path in others)
    os.close(lock)
    git_folders.sweep()
    assert not os.path.exists(mine)
