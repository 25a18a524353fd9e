"""Pipes, sockets, devices, directories, links and files without an end at every name that a
project's files have: the program starts, runs, answers, cancels and stops, and waits for none of
them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from retinue.errors import StoreError
from retinue.sandbox import regular_file as regular
from retinue.store.sqlite.database_file import connect
from retinue.testing import call
from tests.cli.private_home import PrivateHome, private_home
from tests.needs import needs
from tests.security.holes import git

NAMES = (
    *(
        ".gitignore",
        ".rgignore",
        ".ignore",
        ".gitattributes",
        ".gitmodules",
        ".mailmap",
        "src/.gitignore",
    ),
    *(
        ".git/config",
        ".git/HEAD",
        ".git/commondir",
        ".git/gitdir",
        ".git/info/exclude",
        ".git/packed-refs",
    ),
    *(
        ".git/index",
        ".git/shallow",
        ".git/config.worktree",
        ".git/objects/info/alternates",
        ".git/refs/heads/main",
    ),
    *("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".retinue/config.toml", ".retinue/agents/one.md"),
    *(".retinue/skills/s/SKILL.md", ".agents/skills/u/SKILL.md", ".github/copilot-instructions.md"),
    *(
        ".claude/settings.json",
        ".claude/agents/two.md",
        ".claude/skills/t/SKILL.md",
        ".claude/CLAUDE.md",
    ),
    *(
        ".codex/agents/three.toml",
        ".codex/config.toml",
        ".gemini/settings.json",
        ".opencode/agents/four.md",
    ),
    *(
        ".mcp.json",
        "mcp.json",
        "opencode.json",
        "opencode.jsonc",
        ".vscode/mcp.json",
        ".cursor/mcp.json",
    ),
    *(
        ".env",
        "pyproject.toml",
        "package.json",
        "Cargo.toml",
        "go.mod",
        "Makefile",
        "README.md",
        "setup.py",
    ),
    *("src/main.py", "requirements.txt", "tsconfig.json", "pom.xml"),
)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def listening(path: Path) -> None:
    """A name that is a socket. (The address of one is short, the path of a test is not.)"""
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # as /dev/zero


def linked_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def linked_fifo(path: Path) -> None:
    target = path.parent / f"{path.name}.pipe"
    os.mkfifo(target)
    path.symlink_to(target.name)


def folder(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def circular(path: Path) -> None:
    path.symlink_to(path.name)


KINDS = [fifo, endless, listening, linked_device, linked_fifo, folder, dangling, circular]
KINDS += [device] if os.geteuid() == 0 else []


def plant(project: Path, kind: Any, names: tuple[str, ...]) -> None:
    for name in names:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        kind(path)


def repository(project: Path) -> None:
    (project / ".git").rmdir()
    (project / "f.txt").write_text("needle\n")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "f.txt")
    git(project, "commit", "-qm", "first")


def explore(request: Any) -> Any:
    """Use every tool that reads, then answer."""
    n = sum(type(m).__name__ == "AssistantMessage" for m in request.messages)
    calls = [
        [call("list", path="."), call("find", pattern="**/*"), call("search", pattern="needle")],
        [call("read", path=name) for name in (".env", "AGENTS.md", ".gitignore", ".git/config")],
        [call("git", args=["status"]), call("shell", command="cat f.txt")],
        [call("edit", path=".env", old="a", new="b"), call("write", path="new.txt", content="x")],
    ]
    return calls[n] if n < len(calls) else "Done."


@needs("bwrap", "git", "rg")
@pytest.mark.parametrize("kind", KINDS)
def test_the_program_waits_for_no_odd_file_of_a_project(tmp_path: Path, kind: Any) -> None:
    with private_home(tmp_path, explore) as home:
        repository(home.project)
        plant(home.project, kind, NAMES)
        for command in (
            ("config",),
            ("agents",),
            ("mcp", "list"),
            ("doctor",),
            ("trust", "--check"),
            ("ps",),
        ):
            assert home.run(*command).returncode in (0, 1, 2), command
        result = home.real("run", "--yolo", "go")
        assert result.returncode == 0 and "Done." in result.stdout, (result.stdout, result.stderr)
        output = home.ok("export", "latest", "--format", "md")
        assert "needle" in output
        assert home.run("host", "stop").returncode == 0
        home.until(lambda: not _left(tmp_path))


@needs("bwrap", "git", "rg")
@pytest.mark.parametrize("kind", [fifo, endless, linked_fifo, circular])
def test_a_project_whose_git_directory_is_odd_is_worked_in(tmp_path: Path, kind: Any) -> None:
    with private_home(tmp_path, explore) as home:
        repository(home.project)
        plant(home.project, kind, (".git", "src/.git"))
        assert home.ok("run", "--yolo", "go") == "Done."
        home.ok("host", "stop")


@needs("bwrap", "git")
@pytest.mark.parametrize("kind", [fifo, endless, linked_fifo])
def test_a_run_among_odd_files_can_be_cancelled_and_its_host_stopped(
    tmp_path: Path, kind: Any
) -> None:
    def model(request: Any) -> Any:
        return [call("git", args=["status"]), call("shell", command="sleep 600")]

    with private_home(tmp_path, model) as home:
        repository(home.project)
        plant(home.project, kind, tuple(n for n in NAMES if not n.startswith(".git/")))
        run = home.ok("run", "--yolo", "--bg", "go")
        home.until(lambda: _sleeps(home))
        cancelled = home.run("cancel", run)
        assert cancelled.returncode == 0, cancelled.stderr
        assert home.run("host", "stop").returncode == 0


@needs("git")
@pytest.mark.parametrize("kind", [fifo, endless, linked_fifo, folder, circular])
@pytest.mark.parametrize(
    "name", [".git", ".git/config", ".git/HEAD", ".git/refs/heads/main", ".git/index"]
)
def test_an_isolated_agent_in_an_odd_repository_is_told_so_at_once(
    tmp_path: Path, kind: Any, name: str
) -> None:
    agents = {
        "one": {
            "description": "d",
            "prompt": "p",
            "isolation": "worktree",
            "tools": ["Read", "Write"],
        }
    }

    def model(request: Any) -> Any:
        results = [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]
        return f"It said: {results[-1]}" if results else call("write", path="new.txt", content="x")

    with private_home(tmp_path, model) as home:
        repository(home.project)
        plant(home.project, kind, (name,))
        result = home.run("run", "--yolo", "--agents", json.dumps(agents), "--agent", "one", "go")
        assert "It said: " in result.stdout, (result.stdout, result.stderr)
        assert name == ".git/index" or "needs a git repository" in result.stdout, result.stdout
        home.ok("host", "stop")


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_file_is_read_or_refused_at_once(tmp_path: Path, kind: Any) -> None:
    kind(tmp_path / "odd")
    with pytest.raises(OSError):
        regular.read_small(tmp_path / "odd")
    (tmp_path / "plain").write_bytes(b"x" * 100)
    assert regular.read_small(tmp_path / "plain", 100) == b"x" * 100
    with pytest.raises(OSError, match="larger than 99 bytes"):
        regular.read_small(tmp_path / "plain", 99)


@pytest.mark.parametrize("kind", [fifo, listening, linked_device, linked_fifo, folder])
def test_a_store_is_a_regular_file(tmp_path: Path, kind: Any) -> None:
    kind(tmp_path / "odd.db")
    for read_only in (False, True):
        with pytest.raises(StoreError, match="not a regular file"):
            connect(str(tmp_path / "odd.db"), read_only=read_only)


def test_a_lock_that_another_process_keeps_is_not_waited_for_without_end(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    one, other = (os.open(tmp_path / "lock", os.O_RDWR) for _ in range(2))
    try:
        regular.lock(one)
        with pytest.raises(OSError, match="has locked it"):
            regular.lock(other, 0.05)
    finally:
        os.close(one)
        os.close(other)


def _left(folder: Path) -> list[bytes]:
    """The commands that still run in there."""
    results = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "cwd").startswith(str(folder)):
                results.append((entry / "cmdline").read_bytes())
        except OSError:
            continue
    return results


def _sleeps(home: PrivateHome) -> bool:
    """Whether the command of the run has been started."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes() == b"sleep\x00600\x00":
                return True
        except OSError:
            continue
    return False
