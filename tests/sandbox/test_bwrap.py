"""What a command sees and may change in the real sandbox."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from retinue.errors import ConfigError, Refused, SandboxMissing
from retinue.sandbox.base import MIB, CommandLimits
from retinue.sandbox.bwrap import find_sandbox
from retinue.sandbox.private_paths import Private
from retinue.sandbox.resource_limits import find_groups, is_bound
from retinue.sandbox.unsandboxed import Unsandboxed
from tests.needs import needs
from tests.sandbox.bwrap_world import processes_with, run_in
from tests.waiting import SECONDS

pytestmark = needs("bwrap")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def test_the_workspace_is_written_and_the_exit_code_is_told(workspace: Path) -> None:
    ended, output = run_in(workspace, "echo hello > a.txt; cat a.txt; echo oops >&2; exit 7")
    assert (ended.code, ended.why) == (7, "")
    assert output == "hello\noops\n"
    assert (workspace / "a.txt").read_text() == "hello\n"


def test_a_command_killed_by_a_signal_says_which(workspace: Path) -> None:
    assert run_in(workspace, "kill -SEGV $$")[0].code == 128 + 11


def test_without_write_roots_the_directory_is_read_only(workspace: Path) -> None:
    (workspace / "a.txt").write_text("old")
    ended, output = run_in(workspace, "cat a.txt; echo new > a.txt", write=())
    assert ended.code == 1
    assert output.startswith("old") and "Read-only file system" in output
    assert sorted(p.name for p in workspace.iterdir()) == ["a.txt"]


def test_of_the_rest_only_the_systems_programs_are_there(workspace: Path) -> None:
    (workspace.parent / "beside.txt").write_text("x")
    script = (
        f"ls -A / | sort | tr '\\n' ' '; ls -A ~ | wc -l; ls -A /tmp | wc -l; cat "
        f"{workspace.parent}/beside.txt"
    )
    _, output = run_in(
        workspace,
        script,
        sandbox=find_sandbox(readable=()),
        env={"PATH": "/usr/bin", "HOME": "/somewhere"},
    )
    names = set(output.split("\n")[0].split()[:-1])
    system = {
        "bin",
        "dev",
        "etc",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "nix",
        "gnu",
        "opt",
        "proc",
        "sbin",
        "usr",
    }
    assert names <= system | {"somewhere", "tmp", "var", workspace.parts[1]}
    assert "No such file" in output


def test_the_home_directory_and_temporary_files_are_private(
    workspace: Path, tmp_path: Path
) -> None:
    name = f"retinue-{os.getpid()}"
    ended, _ = run_in(
        workspace, f"echo x > ~/{name} && echo x > /tmp/{name} && echo x > /var/tmp/{name}"
    )
    assert ended.code == 0
    assert not any(Path(folder, name).exists() for folder in (Path.home(), "/tmp", "/var/tmp"))


def test_only_the_environment_that_was_given_is_there_and_none_of_ours(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETINUE_TEST_SECRET", "canary-4711")
    script = "env | cut -d= -f1 | sort | tr '\\n' ' '; echo; cat /proc/*/environ | tr '\\0' '\\n'"
    _, output = run_in(workspace, script, env={"PATH": "/usr/bin:/bin", "LANG": "C"})
    assert output.split("\n")[0].split() == ["LANG", "PATH", "PWD", "RETINUE_TOOL", "SHLVL", "_"]
    assert "canary-4711" not in output


def test_there_is_no_network_unless_it_was_granted(workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
        assert "reached" not in run_in(workspace, script)[1]
        assert "reached" in run_in(workspace, script, network=True)[1]


def git_init(workspace: Path) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q", str(workspace)], check=True, env=environment)


@needs("git")
def test_protected_paths_cannot_be_changed_whether_they_exist_or_not(workspace: Path) -> None:
    git_init(workspace)
    (workspace / ".vscode").mkdir()
    config = (workspace / ".git/config").read_text()
    script = """
        echo x > .git/hooks/pre-commit; echo x >> .git/config; rm -rf .git/hooks
        mv .git other; rm -f .git/config
        ln -sf /dev/null .git/config; mv a .git/config; mkdir -p .retinue/agents
        echo x > .retinue/config.toml
        echo '{}' > .mcp.json; rmdir .mcp.json; rm -rf .retinue; mv .retinue x
        echo x > .vscode/tasks.json
        ln -s b .envrc
        chmod 777 .mcp.json; echo x > .mcp.json/x; umount .mcp.json; mv -T a .mcp.json
        git config core.fsmonitor evil
        echo done
    """
    before = {
        p: p.stat().st_ino
        for p in (workspace / ".git", workspace / ".git/hooks", workspace / ".vscode")
    }
    (workspace / "a").write_text("evil")
    _, output = run_in(workspace, script)
    assert output.endswith("done\n")
    assert (workspace / ".git/config").read_text() == config
    assert not (workspace / ".git/hooks/pre-commit").exists()
    assert list((workspace / ".vscode").iterdir()) == []
    assert {p: p.stat().st_ino for p in before} == before
    assert sorted(p.name for p in workspace.iterdir()) == [".git", ".vscode"], (
        "nothing was left behind"
    )
    assert not any((workspace / ".git" / n).exists() for n in ("modules", "worktrees", "commondir"))


@needs("git")
def test_git_can_commit_in_the_sandbox(workspace: Path) -> None:
    git_init(workspace)
    script = (
        "echo x > a; git add -A; git -c user.name=n -c user.email=e commit -qm one && git ls-files"
    )
    ended, output = run_in(workspace, script)
    assert (ended.code, output) == (0, "a\n")


def test_an_empty_workspace_cannot_be_made_a_repository_with_hooks(workspace: Path) -> None:
    run_in(
        workspace,
        "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; git init; mv .git g; echo x > .git",
    )
    assert not (workspace / ".git").exists()
    assert [p.read_text() for p in (workspace.parent / "taken").glob("*/it")] == ["x\n"]


def test_what_git_would_be_misled_by_is_moved_aside(workspace: Path) -> None:
    (workspace / ".git").mkdir()
    ended, _ = run_in(workspace, "mkdir evil; echo ../evil > .git/commondir")
    assert list((workspace / ".git").iterdir()) == []
    (path,) = (workspace.parent / "taken").glob("*/it")
    assert path.read_text() == "../evil\n"
    assert any(".git/commondir was created" in note and str(path) in note for note in ended.notes)


def test_a_protected_link_is_put_back(workspace: Path) -> None:
    (workspace / "shared").mkdir()
    (workspace / ".claude").symlink_to("shared")
    ended, _ = run_in(workspace, "rm .claude; mkdir .claude; echo x > .claude/settings.json")
    assert os.readlink(workspace / ".claude") == "shared"
    assert len(ended.notes) == 1
    assert [p.read_text() for p in (workspace.parent / "taken").glob("*/it/settings.json")] == [
        "x\n"
    ]


def test_a_directory_that_hooks_are_taken_from_is_protected(workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git/config").write_text("[core]\n\thooksPath = tools/hooks\n")
    (workspace / "tools/hooks").mkdir(parents=True)
    run_in(workspace, "echo x > tools/hooks/pre-commit; mv tools t2; echo x > tools/other")
    assert list((workspace / "tools/hooks").iterdir()) == []
    assert (workspace / "tools/other").exists()


def test_what_is_to_be_hidden_is_hidden_in_a_directory_that_was_given(workspace: Path) -> None:
    (workspace / "state/inner").mkdir(parents=True)
    (workspace / "state/inner/log.db").write_text("canary")
    sandbox = find_sandbox(private=Private(folders=(str(workspace / "state"),)))
    _, output = run_in(
        workspace, "find state; cat state/inner/log.db; echo x > state/y", sandbox=sandbox
    )
    assert "canary" not in output
    assert [p.name for p in (workspace / "state").iterdir()] == ["inner"]


def test_secrets_in_a_home_directory_that_was_given_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for name in (".ssh/id", ".aws/credentials", ".config/gh/hosts.yml", "project/a"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("canary")
    (home / ".netrc").write_text("canary")
    monkeypatch.setenv("HOME", str(home))
    script = (
        "cat ~/.ssh/id ~/.aws/credentials ~/.config/gh/hosts.yml ~/.netrc; echo; cat ~/project/a"
    )
    assert run_in(home / "project", script)[1].count("canary") == 1
    assert run_in(home / "project", script, read=(str(home),))[1].count("canary") == 1
    assert run_in(home, script + "; echo x > ~/.ssh/authorized_keys")[1].count("canary") == 1
    assert [p.name for p in (home / ".ssh").iterdir()] == ["id"]


@pytest.mark.parametrize("root", ["/", "/etc", "/usr", "/tmp", "/home", "/proc/self", "/dev/shm"])
def test_what_belongs_to_the_machine_is_not_given_to_be_written(root: str, workspace: Path) -> None:
    with pytest.raises(Refused, match="is a system directory"):
        run_in(workspace, "true", write=(root,))


def test_a_directory_replaced_by_a_link_is_not_followed(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (workspace / "link").symlink_to(outside)
    run_in(
        workspace,
        "echo x > link/y; echo x > ../outside/z; ln -s / root; echo x > root/etc/retinue-test",
    )
    assert list(outside.iterdir()) == []


@needs("git")
def test_a_linked_worktree_reads_its_repository_only_if_that_agrees(
    workspace: Path, tmp_path: Path
) -> None:
    git_init(workspace)
    git = ["git", "-C", str(workspace), "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first one"], check=True)
    tree = tmp_path / "tree"
    subprocess.run([*git, "worktree", "add", "-q", str(tree)], check=True)
    assert "first one" in run_in(tree, "git log --oneline")[1]
    secret, forged = tmp_path / "secret", tmp_path / "forged"
    (secret / "worktrees/x").mkdir(parents=True)
    (secret / "worktrees/x/commondir").write_text("../..\n")
    (secret / "worktrees/x/gitdir").write_text(f"{tree}/.git\n")
    (secret / "key").write_text("canary")
    forged.mkdir()
    (forged / ".git").write_text(f"gitdir: {secret}/worktrees/x\n")
    assert "canary" not in run_in(forged, f"cat {secret}/key")[1]


def test_processes_are_limited(workspace: Path) -> None:
    if not is_bound() and find_groups().pids is None:
        pytest.skip(
            "root without a pids control group: nothing limits the number of processes here"
        )
    (workspace / "bomb.py").write_text(
        "import os, time\nn = 0\ntry:\n    while n < 60:\n        if os.fork() == 0:\n            "
        "time.sleep(60)\n"
        "        n += 1\nexcept OSError:\n    pass\nprint(n)"
    )
    _, output = run_in(workspace, f"{sys.executable} bomb.py", limits=CommandLimits(processes=20))
    assert 0 < int(output) < 20


def test_memory_is_limited(workspace: Path) -> None:
    script = f"{sys.executable} -c \"b = bytearray(400 << 20); print('had it', len(b))\""
    ended, output = run_in(workspace, script, limits=CommandLimits(memory=100 * MIB))
    assert ended.code != 0
    assert "had it" not in output


def test_a_file_can_only_grow_so_far(workspace: Path) -> None:
    """A31: the 100 GB file ends at the limit."""
    ended, _ = run_in(
        workspace, "head -c 100G /dev/zero > big", limits=CommandLimits(file_size=8 * MIB)
    )
    assert ended.code != 0
    assert (workspace / "big").stat().st_size <= 8 * MIB


def test_a_disk_that_fills_up_stops_the_command(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = iter([10_000 * MIB, 9_000 * MIB])
    monkeypatch.setattr("retinue.sandbox.process._free", lambda path: next(rest, 100 * MIB))
    ended, _ = run_in(workspace, "sleep 60")
    assert (ended.code, ended.why) == (None, "disk")


def test_endless_output_ends(workspace: Path) -> None:
    ended, _ = run_in(workspace, "yes", limits=CommandLimits(output=4 * MIB))
    assert ended.why == "output"


def test_no_bwrap_on_the_path_means_refused_with_the_fix(tmp_path: Path) -> None:
    """A37."""
    with pytest.raises(SandboxMissing, match="Install the package bubblewrap"):
        find_sandbox(path=str(tmp_path))
    with pytest.raises(SandboxMissing):
        find_sandbox(path="")


def test_a_program_of_the_project_is_not_taken_for_bwrap(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "bwrap").write_text("#!/bin/sh\necho 'bubblewrap 0.9.0'\n")
    (workspace / "bwrap").chmod(0o755)
    monkeypatch.chdir(workspace)
    with pytest.raises(SandboxMissing):
        find_sandbox(path=".:")
    real = shutil.which("bwrap")
    assert real is not None
    (workspace / "bwrap").unlink()
    shutil.copy(real, workspace / "bwrap")
    with pytest.raises(SandboxMissing, match="not trusted"):
        run_in(workspace, "true", sandbox=find_sandbox(path=str(workspace)))


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'bubblewrap 0.4.1'", "0.4.1 is too old"),
        (
            "echo 'bwrap: No permissions to create a new namespace'; [ $1 = --version ]",
            "is too old",
        ),
        (
            "case $1 in --version) echo bubblewrap 0.9.0;; *) echo 'bwrap: no namespaces'; exit "
            "1;; esac",
            "no namespaces",
        ),
        ("exit 3", "cannot create a sandbox"),
    ],
)
def test_a_bwrap_that_cannot_do_it_is_refused_with_the_reason(
    tmp_path: Path, script: str, says: str
) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(SandboxMissing, match=says):
        find_sandbox(path=str(tmp_path))


def test_where_user_namespaces_are_disabled_it_says_so() -> None:
    """In a sandbox that forbids further ones, as a hardened machine does."""
    code = "from retinue.sandbox.bwrap import find_sandbox; find_sandbox()"
    inside = [
        "bwrap",
        "--unshare-user",
        "--disable-userns",
        "--dev-bind",
        "/",
        "/",
        sys.executable,
        "-c",
        code,
    ]
    source = str(Path(__file__).resolve().parents[2] / "src")
    process = subprocess.run(
        inside,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert process.returncode != 0
    assert "SandboxMissing" in process.stderr and "user namespaces are disabled" in process.stderr


def test_a_bwrap_that_vanishes_later_is_noticed(tmp_path: Path, workspace: Path) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    shutil.copy(shutil.which("bwrap") or "", folder / "bwrap")
    sandbox = find_sandbox(path=str(folder))
    assert run_in(workspace, "true", sandbox=sandbox)[0].code == 0
    (folder / "bwrap").unlink()
    with pytest.raises(SandboxMissing, match="no longer exists"):
        run_in(workspace, "touch ran", sandbox=sandbox)
    assert list(workspace.iterdir()) == []


def test_a_sandbox_that_cannot_be_set_up_runs_nothing(tmp_path: Path, workspace: Path) -> None:
    """A37: it works when it is probed, and then fails."""
    real, folder = shutil.which("bwrap"), tmp_path / "programs"
    folder.mkdir()
    (folder / "bwrap").write_text(
        f'#!/bin/sh\ncase "$*" in *--args*) exit 1;; esac\nexec {real} "$@"\n'
    )
    (folder / "bwrap").chmod(0o755)
    ended, _ = run_in(workspace, "touch ran", sandbox=find_sandbox(path=str(folder)))
    assert (ended.code, ended.why) == (None, "lost")
    assert list(workspace.iterdir()) == []


def test_no_group_and_no_process_is_left(workspace: Path) -> None:

    tag = uuid.uuid4().hex
    run_in(workspace, "setsid sleep 500 & sleep 500 & exit 0", tag=tag)
    assert processes_with(tag) == []
    groups = find_groups()
    for parent in (groups.pids, groups.memory):
        assert parent is None or not list(parent.glob(f"retinue-{os.getpid()}-*"))


def test_bare_must_be_said_aloud_and_still_ends_what_it_started(workspace: Path) -> None:

    with pytest.raises(ConfigError):
        Unsandboxed()
    tag = uuid.uuid4().hex
    sandbox = Unsandboxed(unsafe_no_sandbox=True)
    ended, output = run_in(
        workspace, "setsid sleep 500 & nohup sleep 500 & echo hi; exit 4", sandbox=sandbox, tag=tag
    )
    assert (ended.code, ended.why) == (4, "")
    assert "hi" in output
    assert processes_with(tag) == []
    assert (
        run_in(workspace, "setsid sleep 500 & sleep 500", sandbox=sandbox, tag=tag, seconds=0.3)[
            0
        ].why
        == "timeout"
    )
    assert processes_with(tag) == []


def test_the_guarantees_say_what_holds_here() -> None:
    words = " ".join(guarantee.text for guarantee in find_sandbox().guarantees)
    assert "processes end with the command" in words
    assert ("limit on all processes" in words) == (find_groups().pids is not None)


def test_the_limit_on_processes_binds_all_but_the_root_of_the_machine(tmp_path: Path) -> None:
    uid = os.getuid()
    for lines, is_so in (
        (f"{uid} 0 1\n", False),
        (f"{uid} 1000 1\n", True),
        (f"{uid + 1} 0 1\n{uid} 7 1\n", True),
        ("", uid != 0),
        ("not a map\n", uid != 0),
    ):
        (tmp_path / "map").write_text(lines)
        is_bound.cache_clear()
        assert is_bound(str(tmp_path / "map")) is is_so, lines
    is_bound.cache_clear()
