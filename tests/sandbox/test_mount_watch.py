"""A file that is mounted on is replaced from outside while a command runs: the mount is gone, and
so is the command."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from retinue.sandbox.base import CommandExit
from retinue.sandbox.bwrap import find_sandbox
from retinue.sandbox.private_paths import Private
from tests.needs import needs
from tests.sandbox.bwrap_world import run_in, wait_until

pytestmark = needs("bwrap", "git")

TRIES = (
    "for n in $(seq 2000); do if {attempt}; then break; fi 2>/dev/null; sleep 0.002; done; "
    "sleep 200"
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path


def during(workspace: Path, script: str, act: str, **options: object) -> tuple[CommandExit, str]:
    """What the user does when the command has begun."""

    def user() -> None:
        assert wait_until(lambda: (workspace / "ready").exists())
        subprocess.run(["/bin/sh", "-c", act], cwd=workspace, check=True)

    thread = threading.Thread(target=user)
    thread.start()
    try:
        return run_in(workspace, f"touch ready; {script}", **options)
    finally:
        thread.join()


def test_a_command_ends_when_the_user_changes_the_config_of_git(workspace: Path) -> None:
    ended, _ = during(workspace, "sleep 200", "git config branch.main.remote origin")
    assert ended.why == "stopped" and ended.seconds < 100
    assert f"{workspace}/.git/config was replaced by another process" in ended.notes[0]
    assert len(ended.notes) == 1 and "origin" in (workspace / ".git/config").read_text(), (
        "the user's word stands"
    )


def test_what_a_command_writes_when_the_mount_is_gone_does_not_stay(workspace: Path) -> None:
    attempt = "printf '[core]\\n\\tfsmonitor = evil\\n' >> .git/config"
    ended, _ = during(
        workspace, TRIES.format(attempt=attempt), "git config branch.main.remote origin"
    )
    assert ended.why == "stopped"
    assert "fsmonitor" not in (workspace / ".git/config").read_text()
    subprocess.run(["git", "-C", str(workspace), "status"], check=True, capture_output=True)
    if len(ended.notes) > 1:
        (path,) = (workspace.parent / "taken").glob("*/it")
        assert "origin" in path.read_text() and str(path) in ended.notes[1]


@pytest.mark.parametrize(
    "attempt", ["cp ready .envrc", "ln ready .envrc", "cp mine more; mv more .envrc"]
)
def test_what_a_command_makes_in_the_place_of_what_the_user_removed_does_not_stay(
    workspace: Path, attempt: str
) -> None:
    (workspace / ".envrc").write_text("the user's\n")
    # (It may also have written to the file that was just removed.)
    script = TRIES.format(attempt=f"{attempt} && [ -e .envrc ]")
    ended, _ = during(workspace, f"echo x > mine; {script}", "rm .envrc")
    assert ended.why == "stopped" and (workspace / ".envrc").read_text() == "the user's\n"
    assert len(list((workspace.parent / "taken").glob("*/it"))) == 1


def test_a_hidden_file_that_is_replaced_is_not_shown(workspace: Path) -> None:
    secret = workspace / "state"
    secret.write_text("old canary\n")
    sandbox = find_sandbox(
        private=Private(folders=(str(secret),)), aside=str(workspace.parent / "taken")
    )
    act = f"echo new canary > {workspace.parent}/new; mv {workspace.parent}/new state"
    ended, output = during(workspace, "sleep 200", act, sandbox=sandbox)
    assert (
        ended.why == "stopped" and "state was replaced" in ended.notes[0] and "canary" not in output
    )


def test_where_the_kernel_does_not_tell_it_is_seen_all_the_same(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.sandbox.mount_watch.MountWatch._listen", lambda self: None)
    before = (workspace / ".git/config").read_text()
    ended, _ = during(workspace, "sleep 200", "git config branch.main.remote origin")
    assert ended.why == "stopped" and ended.seconds < 100
    assert (workspace / ".git/config").read_text() == before, "nobody knows who wrote it"
    assert "origin" in next((workspace.parent / "taken").glob("*/it")).read_text()


def test_the_users_ordinary_work_stops_nothing(workspace: Path) -> None:
    (workspace / ".vscode").mkdir()
    act = (
        "touch a; git add a; git -c user.name=a -c user.email=a@b commit -qm a; git gc -q; echo "
        "x > .vscode/x; ls > b"
    )
    ended, output = during(workspace, "sleep 1.5; echo end", act)
    assert (ended.code, ended.notes) == (0, ()) and output == "end\n"


@pytest.mark.parametrize("name", ["name", ".name"])
def test_a_look_at_very_many_names_takes_few_calls_for_each(tmp_path: Path, name: str) -> None:
    from retinue.sandbox.kept_aside import KeptAside
    from retinue.sandbox.readonly_paths import ReadonlyPaths

    for n in range(2_000):
        os.close(os.open(tmp_path / f"{name}-{n}.txt", os.O_CREAT | os.O_WRONLY))
    fd = os.open(tmp_path, os.O_RDONLY)
    shield = ReadonlyPaths.of(str(tmp_path), fd, KeptAside("", "x"))
    os.close(fd)
    called: list[str] = []
    try:
        sys.setprofile(
            lambda frame, event, argument: called.append(event) if event.endswith("call") else None
        )
        shield.remove_new()
    finally:
        sys.setprofile(None)
        shield.release()
    assert 2_000 < len(called) < 6 * 2_000
