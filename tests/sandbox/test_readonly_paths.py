"""A command leaves nothing of ours in the tree, and nothing of its own at a name that other
programs trust."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import needs
from tests.sandbox.bwrap_world import (
    SandboxedTools,
    processes_with,
    run_in,
    wait_until,
    with_sandboxed_tools,
)

pytestmark = needs("bwrap")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def kept(workspace: Path) -> list[Path]:
    return sorted((workspace.parent / "taken").glob("*/it"))


def test_nothing_is_made_in_the_tree_not_for_a_moment(workspace: Path) -> None:
    (workspace / ".git/hooks").mkdir(parents=True)
    before = [os.stat(p).st_ctime_ns for p in (workspace, workspace / ".git")]
    _, output = run_in(workspace, "ls -A . .git")
    assert output == ".:\n.git\n\n.git:\nhooks\n"
    assert [os.stat(p).st_ctime_ns for p in (workspace, workspace / ".git")] == before


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("echo x > .mcp.json", ".mcp.json"),
        ("mkdir -p .MCP.json", ".MCP.json"),
        ("mkdir -p .claude/agents", ".claude"),
        ("mkdir -p .github/agents; echo x > .github/agents/a.md", ".github/agents"),
        ("mkdir -p x/agents; mv x .github", ".github/agents"),
        ("mkdir evil; mv evil .vscode", ".vscode"),
        ("ln -s /etc .envrc", ".envrc"),
        ("git init -q .", ".git"),
        ("echo 'gitdir: evil' > .git", ".git"),
        ("mkdir .g\u200cit", ".g\u200cit"),
        ("mkfifo .envrc", ".envrc"),
        ("echo ref > HEAD; mkdir objects refs", "HEAD"),
    ],
)
def test_what_appears_is_kept_aside_and_told(workspace: Path, script: str, name: str) -> None:
    ended, _ = run_in(workspace, script)
    assert not os.path.lexists(workspace / name)
    (there,) = kept(workspace)
    assert (there.parent / "from").read_text() == str(workspace / name)
    (note,) = ended.notes
    assert name in note and str(there) in note and "the user can" in note


@pytest.mark.parametrize("part", ["hooks", "config", "modules", "commondir", "config.worktree"])
def test_missing_parts_of_a_repository_are_guarded(workspace: Path, part: str) -> None:
    (workspace / ".git").mkdir()
    ended, _ = run_in(workspace, f"mkdir .git/{part}; echo x > .git/{part}/x; touch .git/HEAD")
    assert [p.name for p in (workspace / ".git").iterdir()] == ["HEAD"]
    assert (kept(workspace)[0] / "x").read_text() == "x\n" and len(ended.notes) == 1


def test_data_of_a_worktree_elsewhere_stays_and_of_one_in_the_tree_goes(
    workspace: Path, tmp_path: Path
) -> None:
    (workspace / ".git").mkdir()
    script = f"""
        mkdir -p .git/worktrees/mine .git/worktrees/theirs .git/worktrees/half .git/worktrees/evil
        for one in mine theirs evil; do echo ../.. > .git/worktrees/$one/commondir; done
        echo {workspace}/tree/.git > .git/worktrees/mine/gitdir
        echo {tmp_path}/elsewhere/.git > .git/worktrees/theirs/gitdir
        echo {tmp_path}/elsewhere/.git > .git/worktrees/evil/gitdir
        echo ../../evil > .git/worktrees/evil/commondir
    """
    run_in(workspace, script)
    assert sorted(p.name for p in (workspace / ".git/worktrees").iterdir()) == ["half", "theirs"]
    assert len(kept(workspace)) == 2


def test_what_was_there_before_is_never_taken(workspace: Path) -> None:
    (workspace / ".claude").mkdir()
    (workspace / ".claude/mine").write_text("mine")
    (workspace / ".Mcp.json").write_text("mine")
    ended, _ = run_in(
        workspace, "echo x > .claude/mine; rm -rf .claude .Mcp.json; echo y > .Mcp.json"
    )
    assert (
        (workspace / ".claude/mine").read_text() == (workspace / ".Mcp.json").read_text() == "mine"
    )
    assert ended.notes == () and kept(workspace) == []


def test_it_is_taken_away_while_the_command_still_runs(workspace: Path) -> None:
    script = (
        "echo x > .envrc; n=0; while [ -e .envrc ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + "
        "1)); done; echo $n"
    )
    ended, output = run_in(workspace, script)
    assert int(output) < 100 and len(ended.notes) == 1


def test_a_command_that_does_it_again_and_again_is_stopped(workspace: Path) -> None:
    script = (
        "while :; do echo x > .envrc; mkdir .mcp.json .vscode .husky; sleep 0.01; done 2>/dev/null"
    )
    ended, _ = run_in(workspace, script)
    assert ended.why == "stopped"
    assert not (workspace / ".envrc").exists()
    assert 16 < len(kept(workspace)) < 40


def test_without_a_place_to_keep_it_it_stays_under_another_name(workspace: Path) -> None:
    from retinue.sandbox.bwrap import find_sandbox

    ended, _ = run_in(workspace, "echo x > .envrc", sandbox=find_sandbox())
    (there,) = workspace.iterdir()
    assert there.name.startswith(".envrc.refused-") and str(there) in ended.notes[0]


VICTIM = """
import asyncio, sys
from pathlib import Path
from tests.sandbox.bwrap_world import SandboxedTools

async def go():
    tools = SandboxedTools(Path(sys.argv[1]))
    await tools.sh(sys.argv[2] + "; touch made; sleep 60", timeout_seconds=60)

asyncio.run(go())
"""


def killed_during(tmp_path: Path, command: str) -> Path:
    """A runtime is killed while this command runs in the workspace, which is returned when its
    watcher is done."""
    source = [str(Path(__file__).resolve().parents[2]), *(p for p in sys.path if p)]
    env = {**os.environ, "PYTHONPATH": ":".join(source)}
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(tmp_path), command], env=env)
    workspace = tmp_path / "workspace"
    try:
        assert wait_until(lambda: (workspace / "made").exists())
    finally:
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    (record,) = (tmp_path / "state" / "shell").iterdir()
    assert wait_until(lambda: not processes_with(f"{tmp_path}/state/taken")), record
    return workspace


def test_after_a_kill_the_users_repository_is_where_it_was(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    (workspace / ".github").symlink_to(tmp_path)
    (tmp_path / "agents").mkdir()
    before = sorted(workspace.iterdir()), sorted((workspace / ".git").iterdir())
    killed_during(tmp_path, "true")
    (workspace / "made").unlink()
    assert (sorted(workspace.iterdir()), sorted((workspace / ".git").iterdir())) == before
    assert (tmp_path / "agents").is_dir()
    assert list((tmp_path / "state" / "taken").glob("*")) == []


def test_after_a_kill_nothing_is_taken_through_a_link_of_the_commands(tmp_path: Path) -> None:
    other, workspace = tmp_path / "other", tmp_path / "workspace"
    for name in ("agents", "hooks"):
        (other / name).mkdir(parents=True)
        (other / name / "mine").write_text("mine")
    workspace.mkdir()
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    subprocess.run(
        ["git", "-C", str(workspace), "config", "core.hooksPath", "build/hooks"], check=True
    )
    killed_during(tmp_path, f"ln -s {other} .github; ln -s {other} build; ln -s {other} .envrc")
    assert (other / "agents" / "mine").exists() and (other / "hooks" / "mine").exists()
    assert [os.readlink(p) for p in (tmp_path / "state" / "taken").glob("*/it")] == [str(other)]


def test_after_a_kill_it_is_taken_away_all_the_same_and_told_at_the_next_start(
    tmp_path: Path,
) -> None:
    workspace, path = tmp_path / "workspace", tmp_path / "state" / "taken"
    killed_during(tmp_path, "mkdir .claude; echo x > .claude/x; mkfifo .envrc")
    assert wait_until(lambda: sorted(p.name for p in workspace.iterdir()) == ["made"])
    assert wait_until(lambda: len(list(path.glob("*/it"))) == 2)

    async def again(tools: SandboxedTools) -> list[str]:
        return [(await tools.sh("true")).text for _ in range(2)]

    first, second = with_sandboxed_tools(tmp_path, again)
    assert f"{workspace}/.claude" in first and f"{workspace}/.envrc" in first and str(path) in first
    assert str(path) not in second


def test_two_commands_at_once_do_not_take_from_each_other(tmp_path: Path) -> None:
    async def both(tools: SandboxedTools) -> None:
        (tools.workspace / ".husky").mkdir()
        met = "until [ -e made0 ] && [ -e made1 ] && [ -e made2 ]; do sleep 0.02; done"
        answers = await asyncio.gather(
            *(tools.sh(f"echo {n} > made{n}; {met}; ls -A") for n in range(3))
        )
        assert all("made0\nmade1\nmade2" in answer.text for answer in answers)

    with_sandboxed_tools(tmp_path, both)
    assert sorted(p.name for p in (tmp_path / "workspace").iterdir()) == [
        ".husky",
        "made0",
        "made1",
        "made2",
    ]


def test_what_cannot_be_taken_away_is_told_and_ends_the_command(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> str:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("retinue.sandbox.kept_aside.KeptAside.take", refuse)
    ended, _ = run_in(workspace, "echo x > .envrc; sleep 60")
    assert (
        ended.why == "stopped" and ".envrc is protected and could not be removed" in ended.notes[0]
    )
