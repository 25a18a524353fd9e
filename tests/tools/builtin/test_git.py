"""The git tool: it looks, whatever the repository or the model would have it do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from retinue.core.values import Permissions
from retinue.tools.base import ToolResult
from retinue.tools.builtin.git import OPTIONS, GitTool
from retinue.tools.builtin.git_cuts import Hunks
from retinue.tools.builtin.run_processes import Processes
from tests.needs import needs
from tests.sandbox.bwrap_world import SandboxedTools, with_sandboxed_tools

pytestmark = needs("bwrap", "git")


def host_git(folder: Path, *words: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    base = ["git", "-C", str(folder), "-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    return subprocess.run(
        [*base, *words], check=True, env=environment, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    workspace = SandboxedTools(tmp_path).workspace
    host_git(workspace, "init", "-q", "-b", "main")
    (workspace / "a.txt").write_text("one\n")
    host_git(workspace, "add", "-A")
    host_git(workspace, "commit", "-q", "-m", "the first")
    (workspace / "a.txt").write_text("two\n")
    host_git(workspace, "commit", "-q", "-am", "the second")
    host_git(workspace, "tag", "v1")
    (workspace / "a.txt").write_text("three\n")
    (workspace / "new.txt").write_text("x\n")
    return tmp_path


def ask(folder: Path, *words: str, **fields: Any) -> ToolResult:
    async def act(tools: SandboxedTools) -> ToolResult:
        answer = await tools.git.run(tools.caller(**fields), {"args": list(words)})
        assert isinstance(answer, ToolResult)
        return answer

    return with_sandboxed_tools(folder, act)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["log", "--oneline", "-n1"], "the second"),
        (["log", "-1", "--format=%s by %an"], "the second by Ada\n"),
        (["log", "-n", "1", "--stat", "--", "a.txt"], "a.txt | 2 +-"),
        (["show", "HEAD~1:a.txt"], "one\n"),
        (["diff"], "-two\n+three\n"),
        (["diff", "--cached"], "(no output)"),
        (["status", "--short"], " M a.txt\n?? new.txt\n"),
        (["blame", "-L1,1", "HEAD", "--", "a.txt"], "two"),
        (["shortlog", "-sn", "HEAD"], "option '-sn' of git shortlog is not available"),
        (["shortlog", "-s", "-n", "HEAD"], "2\tAda"),
        (["ls-files"], "a.txt\n"),
        (["rev-parse", "--abbrev-ref", "HEAD"], "main\n"),
        (["branch"], "* main\n"),
        (["branch", "--show-current"], "main\n"),
        (["branch", "-a", "--contains", "HEAD"], "* main\n"),
        (["tag", "--list", "v*"], "v1\n"),
    ],
)
def test_it_shows_what_git_shows(repository: Path, words: list[str], says: str) -> None:
    assert says in ask(repository, *words).text


@pytest.mark.parametrize(
    "words",
    [
        ["commit", "-m", "x"],
        ["push"],
        ["config", "--list"],
        ["-c", "core.pager=touch evil", "log"],
        ["--exec-path=/tmp", "log"],
        ["log", "--output=evil"],
        ["diff", "--output", "evil"],
        ["diff", "--ext-diff"],
        ["show", "--textconv", "HEAD"],
        ["log", "--show-signature"],
        ["diff", "-Oevil"],
        ["diff", "--no-index", "/etc/passwd", "/dev/null"],
        ["log", "--upload-pack=touch evil"],
        ["log", "--outpu=evil"],
        ["branch", "-D", "main"],
        ["branch", "-m", "other"],
        ["branch", "--set-upstream-to=x"],
        ["branch", "--edit-description"],
        ["tag", "-d", "v1"],
        ["tag", "-a", "v2", "-m", "x"],
        ["blame", "--contents", "/etc/passwd", "a.txt"],
        ["ls-files", "--with-tree=x", "-X", "/etc/passwd"],
        ["rev-parse", "--parseopt"],
        ["grep", "-Otouch", "x"],
        ["archive", "--remote=x"],
        ["log", "a\0b"],
        [""],
        ["log", "-n1;touch evil"],
    ],
)
def test_what_is_not_on_the_list_is_refused_by_name(repository: Path, words: list[str]) -> None:
    answer = ask(repository, *words)
    assert answer.error and answer.text.startswith("Invalid parameters")
    assert not (repository / "workspace/evil").exists()


def test_a_bare_name_makes_neither_branch_nor_tag(repository: Path) -> None:
    ask(repository, "branch", "other")
    ask(repository, "tag", "v2")
    assert host_git(repository / "workspace", "branch", "--format=%(refname:short)") == "main\n"
    assert host_git(repository / "workspace", "tag") == "v1\n"


def test_a_hostile_repository_runs_nothing(repository: Path) -> None:
    workspace = repository / "workspace"
    script = workspace / "evil.sh"
    script.write_text("#!/bin/sh\necho ran-evil-$1\ntouch ran\ncat\n")
    script.chmod(0o755)
    settings = {
        "core.fsmonitor": "fsmonitor",
        "core.pager": "pager",
        "core.hooksPath": ".",
        "diff.external": "external",
        "diff.evil.command": "command",
        "diff.evil.textconv": "textconv",
        "core.sshCommand": "ssh",
        "gpg.program": "gpg",
        "pager.log": "pager-log",
        "alias.log": "alias",
    }
    for name, word in settings.items():
        value = f"!{script} {word}" if name.startswith("alias") else f"{script} {word}"
        host_git(workspace, "config", name, value)
    host_git(workspace, "config", "log.showSignature", "true")
    (workspace / ".gitattributes").write_text("*.txt diff=evil\n")
    for words in (
        ["status"],
        ["diff"],
        ["log", "-p", "--format=%G? %s"],
        ["show", "HEAD"],
        ["blame", "a.txt"],
        ["branch", "-v"],
    ):
        answer = ask(repository, *words)
        assert "ran-evil" not in answer.text, (words, answer.text)
    assert not (workspace / "ran").exists()


def test_filters_of_the_repository_are_not_run(repository: Path) -> None:
    """They can be called anything, so they cannot be switched off one by one."""
    workspace = repository / "workspace"
    host_git(workspace, "config", "filter.evil.clean", "touch ran; echo ran-evil; cat")
    (workspace / ".gitattributes").write_text("*.txt filter=evil\n")
    os.utime(workspace / "a.txt")
    answer = ask(repository, "status")
    assert "ran-evil" not in answer.text and "ran-evil" not in ask(repository, "diff").text
    assert not (workspace / "ran").exists()


def test_a_long_output_is_cut_in_the_middle(repository: Path) -> None:
    workspace = repository / "workspace"
    (workspace / "big.txt").write_text("".join(f"line {i}\n" for i in range(100_000)))
    host_git(workspace, "add", "-A")
    answer = ask(repository, "diff", "--cached")
    assert "bytes hidden" in answer.text and "+line 99999" in answer.text
    assert len(answer.text) < 300_000


def test_outside_of_a_repository_it_says_so(tmp_path: Path) -> None:
    answer = ask(tmp_path, "status")
    assert answer.error and "is not in a git repository" in answer.text


def test_a_run_with_a_network_gives_git_none_and_its_own_secrets_stay(repository: Path) -> None:
    permissions = Permissions(hosts=("*",))
    assert "the second" in ask(repository, "log", permissions=permissions).text


@pytest.mark.parametrize(
    "args", [{}, {"args": []}, {"args": "log"}, {"args": [1]}, {"args": ["log"], "more": 1}]
)
def test_bad_arguments_are_named(tmp_path: Path, args: dict[str, Any]) -> None:
    async def act(tools: SandboxedTools) -> ToolResult:
        answer = await tools.git.run(tools.caller(), args)
        assert isinstance(answer, ToolResult)
        return answer

    answer = with_sandboxed_tools(tmp_path, act)
    assert answer.error and answer.text.startswith("Invalid parameters")


def test_the_summary_is_one_line(tmp_path: Path) -> None:
    tool = GitTool(Processes(tmp_path))
    assert tool.summary({"args": ["log", "-n1"]}) == "git log -n1"
    assert (tool.restart, tool.risk) == ("pure", "read")
    assert all(name in tool.description for name in OPTIONS)


KEY = "sk-ant-api03-" + "Qw7Zx9Lm2Np4Rt6Yv8Bk3Jd5Hf1Gs0Ac" * 3 + "AA"
HALVES = (KEY[:30], KEY[13:40], KEY[-20:])


def keyed(folder: Path, *words: str) -> ToolResult:
    async def act(tools: SandboxedTools) -> ToolResult:
        caller = tools.caller()
        caller.redactor.learn({"KEY": KEY})
        answer = await tools.git.run(caller, {"args": list(words)})
        assert isinstance(answer, ToolResult)
        return answer

    return with_sandboxed_tools(folder, act)


@pytest.fixture
def keyed_repository(repository: Path) -> Path:
    """A key in a commit's words, in a file's name, in a branch's, and in the line above every
    hunk."""
    workspace = repository / "workspace"
    body = f"KEY={KEY}\n" + "#\n" * 6
    (workspace / ".env").write_text(body + "DEBUG=0\n")
    (workspace / f"{KEY}.txt").write_text("x\n")
    host_git(workspace, "add", "-A")
    host_git(workspace, "commit", "-q", "-m", f"add {KEY}\n\n123:{KEY}")
    host_git(workspace, "tag", "-a", "-m", f"tag {KEY}", "v2")
    host_git(workspace, "checkout", "-q", "-b", "other")
    (workspace / ".env").write_text(body + "DEBUG=1\n")
    host_git(workspace, "commit", "-q", "-am", "one")
    host_git(workspace, "checkout", "-q", "main")
    (workspace / ".env").write_text(body + "DEBUG=2\n")
    host_git(workspace, "commit", "-q", "-am", "two")
    host_git(workspace, "merge", "-q", "-s", "ours", "-m", "three", "other")
    (workspace / ".env").write_text(body + "DEBUG=3\n")
    return repository


@pytest.mark.parametrize(
    "words",
    [
        ["diff"],
        ["diff", "-U0"],
        ["diff", "HEAD~1"],
        ["log", "-p"],
        ["log", "-p", "--graph", "--all"],
        ["log", "-p", "-m", "--graph"],
        ["show", "-c", "HEAD"],
        ["log", "-L8,8:.env"],
        ["status", "-v"],
        ["log", "--stat"],
        ["log", "--stat=40,20"],
        ["log", "--compact-summary"],
        ["branch", "-v"],
        ["tag", "-n3"],
    ],
)
def test_nothing_is_cut_before_it_is_cleaned(keyed_repository: Path, words: list[str]) -> None:
    answer = keyed(keyed_repository, *words)
    assert not answer.error, answer.text
    assert not any(half in answer.text for half in HALVES), answer.text


def test_numbers_of_hunks_stay(keyed_repository: Path) -> None:
    assert "\n@@ -5,4 +5,4 @@\n" in keyed(keyed_repository, "diff").text


@pytest.mark.parametrize(
    "words",
    [
        ["log", "--format=%<(40,trunc)%s"],
        ["log", "--format=%<|(40,ltrunc)%s"],
        ["log", "--format=%><(40,mtrunc)%s"],
        ["log", "--pretty=format:%>>(40,trunc)%s"],
        ["log", "--pretty=tformat:%%%w(20,1,1)%s"],
        ["log", "--format=%f"],
        ["log", "--format=%+f"],
        ["log", "--format=%al"],
        ["log", "--format=%(trailers:valueonly)"],
        ["log", "--pretty=email"],
        ["log", "--pretty=ema"],
        ["log", "--word-diff=plain"],
        ["show", "--format=%<(40,trunc)%s"],
        ["shortlog", "--group=trailer:123", "HEAD"],
        ["shortlog", "--group", "format:%f", "HEAD"],
        ["tag", "--format=%(align:width=20)%(subject)%(end)"],
        ["tag", "--format", "%(contents:subject:sanitize)"],
        ["branch", "--format=%(refname:rstrip=-1)"],
    ],
)
def test_a_format_that_cuts_is_refused(keyed_repository: Path, words: list[str]) -> None:
    answer = keyed(keyed_repository, *words)
    assert answer.error and answer.text.startswith("Invalid parameters"), answer.text


@pytest.mark.parametrize(
    "words",
    [
        ["log", "-1", "--format=%H%x09%an%n%+b%%%C(auto)%d"],
        ["log", "-1", "--pretty=oneline"],
        ["log", "-1", "--pretty"],
        ["tag", "--format=%(refname:short) %(contents:subject) %(creatordate:iso)"],
        ["branch", "--format", "%(HEAD) %(refname:lstrip=2) %(upstream:track)"],
        ["shortlog", "-s", "--group=committer", "HEAD"],
    ],
)
def test_a_format_that_shows_all_is_taken(keyed_repository: Path, words: list[str]) -> None:
    answer = keyed(keyed_repository, *words)
    assert not answer.error and answer.text, answer.text


@pytest.mark.parametrize("size", [1, 7, 50, 5000])
def test_hunks_are_found_however_the_output_comes(size: int) -> None:
    text = (
        b"@@ -1 +1,2 @@ def x\n+@@ -1 +1 @@ kept\n@@@ -1 -1,3 +1 @@@ y\n"
        + b"z" * 9000
        + b"@@ -1 +1 @@ kept\n@@ -1 +1 @@ z"
    )
    hunks = Hunks([])
    out = (
        b"".join(hunks.feed(text[i : i + size]) for i in range(0, len(text), size)) + hunks.close()
    )
    assert out == text.replace(b" def x", b"").replace(b" y\n", b"\n")[:-2]
