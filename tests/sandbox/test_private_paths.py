"""What is ours is known by every path that leads to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retinue.config.user_folders import note_file, noted_files, private_places
from retinue.errors import Refused
from retinue.sandbox.bwrap import find_sandbox
from retinue.sandbox.private_paths import Private, _numbers
from retinue.sandbox.protected_paths import names
from retinue.store.sqlite.database_file import take_over
from tests.needs import needs
from tests.sandbox.bwrap_world import run_in


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    _numbers.cache_clear()
    return path


def test_a_store_is_hidden_with_everything_that_has_its_name_in_front(tmp_path: Path) -> None:
    private = Private(str(tmp_path / "a.db"))
    for name in (
        "a.db",
        "a.db-wal",
        "a.db-journal",
        "a.db.tools/shell/1/output",
        "a.db.before-0002",
        "a.db.sent",
    ):
        assert private.why(str(tmp_path / name)), name
    for name in ("a.dbx", "a", "b.db", "sub/a.db", "a.db_notes"):
        assert not private.why(str(tmp_path / name)), name


def test_folders_are_hidden_where_the_variables_say_and_where_they_are_by_default(
    home: Path, tmp_path: Path
) -> None:
    private = private_places({"HOME": str(home), "XDG_STATE_HOME": str(tmp_path / "s")})
    places = (
        ".config/retinue/x",
        ".local/share/retinue/projects/p/retinue.db",
        ".local/state/x",
        ".cache/retinue/m",
    )
    for path in (*(home / place for place in places), tmp_path / "s/retinue/log/x.log"):
        assert private.why(str(path)), path
    assert not private.why(str(home / ".cache/pip/x"), str(home / ".cache/pip"))
    assert not private.why(str(home / "work/x"))


HIDDEN = names(
    ".Xauthority .m2/settings.xml .gem/credentials .gradle/gradle.properties .s3cfg .boto "
    ".authinfo .env "
    ".cache/huggingface/token .oci/config .rclone.conf .msmtprc .subversion/auth .thunderbird/x "
    ".mysql_history "
    ".viminfo .kaggle/kaggle.json .envrc .mcp.json .cargo/credentials .local/share/x .Anything "
    ".ssh/id"
)
PROFILES = (
    "snap/firefox/common/.mozilla/firefox/x/logins.json",
    "snap/chromium/common/chromium/Default/Cookies",
    "Library/Keychains/login.keychain-db",
    "Library/Application Support/Google/Chrome/Default/Login Data",
)
SHOWN = names(
    "snapshots/x Library/notes .gitignore .github/x .git/config .venv/bin/python .env.example "
    "work/.env notes "
    ".pytest_cache/x"
)


def test_in_a_home_everything_with_a_dot_is_hidden_that_is_not_usual_in_projects(
    home: Path,
) -> None:
    private = Private()
    for name in (*HIDDEN, *PROFILES):
        assert private.why(str(home / name), str(home)), name
        assert private.hides(str(home))(name), name
    for name in SHOWN:
        assert not private.why(str(home / name), str(home)), name
    assert not private.why(str(home / ".dotfiles/vimrc"), str(home / ".dotfiles")), (
        "a place of work of its own"
    )
    assert private.why(str(home / ".ssh/id"), str(home / ".ssh"))


CREDENTIALS = names(
    ".m2/settings.xml .gem/credentials .gradle/gradle.properties .s3cfg .boto .authinfo "
    ".authinfo.gpg .oci/config "
    ".cache/huggingface/token .rclone.conf .msmtprc .subversion/auth/x .thunderbird/x "
    ".mysql_history .mylogin.cnf "
    ".kaggle/kaggle.json .composer/auth.json .bundle/config .yarnrc.yml .pulumi/credentials.json "
    ".databrickscfg "
    ".Xauthority .smbcredentials .node_repl_history .viminfo .fly/config.yml "
    ".local/share/fish/fish_history .pki/x"
)


@pytest.mark.parametrize("name", sorted(CREDENTIALS))
def test_a_second_name_of_a_file_with_credentials_shows_it_no_more_than_the_first(
    home: Path, name: str
) -> None:
    work = home / "work"
    work.mkdir()
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text("token")
    os.link(home / name, work / "innocent")
    assert Private().is_linked((work / "innocent").stat())
    assert Private().why(str(home / name), str(work))


@needs("bwrap")
def test_a_command_sees_none_of_it_either(home: Path) -> None:
    for name in (*HIDDEN, *PROFILES, *SHOWN):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"canary of {name}\n")
    ended, output = run_in(home, "grep -rhs canary . | sort")
    assert ended.code == 0
    assert output.splitlines() == sorted(
        f"canary of {name}" for name in SHOWN if "/.git/" not in name
    )


@needs("bwrap")
def test_our_folders_in_a_workspace_are_there_before_a_command_can_make_them(
    tmp_path: Path,
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    private = private_places({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(workspace / "c")})
    sandbox = find_sandbox(private=private, aside=str(tmp_path / "taken"))
    script = (
        "mkdir -p c/retinue; echo x > c/retinue/config.toml; mv c d; ln -s / c/retinue/x; ls "
        "-A c/retinue"
    )
    _, output = run_in(workspace, script, sandbox=sandbox)
    assert list((workspace / "c/retinue").iterdir()) == [] and not (workspace / "d").exists(), (
        output
    )


def test_a_second_name_is_found_beside_very_many_other_files(home: Path) -> None:
    many = home / ".config" / "many"
    many.mkdir(parents=True)
    for n in range(6_000):
        (many / str(n)).touch()
    (home / ".netrc").write_text("x")
    os.link(home / ".netrc", home / "innocent")
    private = Private()
    assert private.is_linked(os.lstat(home / "innocent"))
    (home / "one").touch()
    os.link(home / "one", home / "two")
    start = time.process_time()
    assert not any(private.is_linked(os.lstat(home / "two")) for _ in range(1_000))
    assert time.process_time() - start < 4, (
        "a walk through all of them takes that for a hundred calls"
    )


MOUNTED_HOME = """
import sys
from retinue.sandbox.private_paths import Private, _numbers
from retinue.sandbox.protected_paths import protected, home_directories
root, part = sys.argv[1:]
private = Private()
assert private.why(f"{root}/.netrc", root) and private.why(f"{root}/.ssh/id", root), \
home_directories()
assert private.why(f"{part}/id", part), "a part of it"
assert f"{root}/.ssh" in private.beneath((root,))
assert protected(f"{root}/.local/bin/x", root) and not private.why(f"{root}/work/.netrc", \
f"{root}/work")
"""


@needs("bwrap")
def test_a_home_is_one_through_another_mount_too(home: Path, tmp_path: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/id").write_text("x")
    (home / ".netrc").write_text("x")
    other, part = tmp_path / "other", tmp_path / "part"
    other.mkdir()
    part.mkdir()
    binds = [
        "--dev-bind",
        "/",
        "/",
        "--bind",
        str(home),
        str(other),
        "--bind",
        str(home / ".ssh"),
        str(part),
    ]
    source = os.pathsep.join(p for p in sys.path if p)
    process = subprocess.run(
        ["bwrap", *binds, sys.executable, "-c", MOUNTED_HOME, str(other), str(part)],
        env={**os.environ, "PYTHONPATH": source, "HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr


def test_a_run_sees_its_own_copy_and_no_other(tmp_path: Path) -> None:
    private, copies = Private(str(tmp_path / "a.db")), tmp_path / "a.db.tools/worktrees"
    mine = str(copies / "run1")
    assert not private.why(f"{mine}/src/x.py", mine) and not private.hides(mine)("src/x.py")
    for path in (f"{copies}/run2/x", f"{copies}/run1.json", f"{copies}", f"{tmp_path}/a.db"):
        assert private.why(path, mine), path
    assert private.why(f"{mine}/src/x.py", str(tmp_path))


def test_links_lead_to_what_is_hidden(home: Path, tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles"
    (dotfiles / "ssh").mkdir(parents=True)
    (dotfiles / "retinue.toml").write_text("x")
    (home / ".ssh").symlink_to(dotfiles / "ssh")
    (home / ".config/retinue").mkdir(parents=True)
    (home / ".config/retinue/config.toml").symlink_to(dotfiles / "retinue.toml")
    private = private_places({"HOME": str(home)})
    assert private.beneath((str(dotfiles),)) == [
        str(dotfiles / "ssh"),
        str(dotfiles / "retinue.toml"),
    ]
    assert private.why(str(dotfiles / "retinue.toml"))


def test_a_store_somewhere_else_is_remembered_and_forgotten_with_it(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    store = tmp_path / "else" / "runs.db"
    store.parent.mkdir()
    store.touch()
    note_file(environ, str(store))
    assert list(noted_files(environ)) == [str(store)] == list(private_places(environ).stores[1:])
    store.unlink()
    assert (
        list(noted_files(environ))
        == []
        == list((tmp_path / ".local/state/retinue/stores").iterdir())
    )


def test_the_store_of_a_program_that_we_know_nothing_of_is_known_by_its_head(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "theirs")
    take_over(path, "off")[0].close(True)
    Path(f"{path}.lock").touch()
    (tmp_path / "theirs.tools").mkdir()
    (tmp_path / "cargo.lock").touch()
    private = Private()
    assert {path, f"{path}.lock", f"{path}.tools"} <= set(private.beneath((str(tmp_path),)))
    assert private.why(path) and private.why(f"{path}.tools/shell/x/output")
    assert private.hides(str(tmp_path))("theirs.tools")
    assert not private.why(str(tmp_path / "cargo.lock"))


@needs("bwrap")
def test_a_directory_in_which_something_is_hidden_is_not_given(tmp_path: Path) -> None:
    workspace = tmp_path / "data" / "projects"
    workspace.mkdir(parents=True)
    sandbox = find_sandbox(private=Private(folders=(str(tmp_path / "data"),)))
    with pytest.raises(Refused, match="is not available to commands"):
        run_in(workspace, "true", sandbox=sandbox)


@needs("bwrap")
@pytest.mark.parametrize("name", [".git/hooks", ".vscode", "x/.claude/agents"])
def test_a_command_is_not_sent_to_work_in_something_protected(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(Refused, match="cannot be made writable"):
        run_in(tmp_path / name, "true")


MOUNTED = """
import os, sys
from retinue.sandbox.private_paths import Private, _numbers
top = sys.argv[1]
private = Private(top + "/state/a.db", folders=(top + "/data/retinue",))
shown = top + "/workspace/inner"
assert private.why(shown + "/a.db-wal"), "the whole directory"
assert private.why(top + "/workspace/part/x"), "a directory below"
assert set(private.beneath((top + "/workspace",))) == {shown + "/a.db", top + "/workspace/part"}
print("both")
"""


def test_a_second_mount_of_the_same_directory_shows_nothing(tmp_path: Path) -> None:
    for name in ("state", "data/retinue/projects", "workspace/inner", "workspace/part"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "state/a.db").touch()
    script = 'mount --bind "$1/state" "$1/workspace/inner" && '
    script += (
        'mount --bind "$1/data/retinue/projects" "$1/workspace/part" && exec "$2" -c "$3" "$1"'
    )
    argv = ["unshare", "--mount", "--map-root-user", "--user", "sh", "-c", script, "sh"]
    if os.getuid() == 0:
        argv = ["unshare", "--mount", "sh", "-c", script, "sh"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*argv[: argv.index("sh")], "true"], check=False).returncode
    ):
        pytest.skip("nothing can be mounted here")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.run(
        [*argv, str(tmp_path), sys.executable, MOUNTED], env=env, capture_output=True, text=True
    )
    assert process.stdout == "both\n", process.stderr
