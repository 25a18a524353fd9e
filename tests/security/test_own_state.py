"""What belongs to the runtime, and the secrets of a home, cannot be seen or touched from inside,
wherever they lie: through the installed program, as this user and as an ordinary one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.needs import needs
from tests.security.own_state import (
    CANARY,
    SHELL,
    USERS,
    Machine,
    file_calls,
    hostile,
    library,
    listing,
    machine,
    provider,
    said,
)

TASK = f"{CANARY} is in the store"
SECRETS = (
    ".ssh/id",
    ".netrc",
    ".git-credentials",
    ".config/gh/hosts.yml",
    ".local/share/keyrings/k",
    ".bashrc",
)

REFUSED = (
    "cannot be used",
    "cannot be changed",
    "is a directory",
    "this is a file",
    "part of this path is a file",
)
REFUSED += ("no such file", "this is a directory", "not a regular file")


def unharmed(result: Machine) -> None:
    assert {name: (result.home / name).read_text() for name in SECRETS[:-1]} == dict.fromkeys(
        SECRETS[:-1], f"{CANARY}\n"
    )
    assert (result.home / ".bashrc").read_text() == "# mine\n"
    for folder in (".local/bin", ".config/autostart"):
        assert list((result.home / folder).iterdir()) == []
    assert not [path for path in result.home.rglob("evil") if "taken" not in path.parts]
    assert not list(result.home.rglob("*.refused-*"))


def stopped(text: str) -> None:
    assert "the attack has ended" in text, text[-3000:]
    assert "LEAK" not in text, [line for line in text.splitlines() if "LEAK" in line]


@needs("bwrap")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("where", ["home", "added", "store"])
def test_a_command_finds_nothing_of_ours(user: str, where: str) -> None:
    with machine(user) as machine_used:
        cwd = machine_used.home if where == "home" else machine_used.project
        options = {
            "home": (),
            "added": ("--add-dir", str(machine_used.home)),
            "store": ("--store", "retinue.db"),
        }[where]
        script = f"THERE={machine_used.home if where == 'added' else cwd}\n{SHELL}"
        with provider(hostile(call("shell", command=script, timeout_seconds=40))) as env:
            result = machine_used.run(
                "-m", "retinue", "run", "--yolo", "-p", *options, TASK, cwd=cwd, **env
            )
        stopped(said(result))
        unharmed(machine_used)
        for name in (".mcp.json", ".zshrc", "retinue.db-journal"):
            if where != "home" and name == ".zshrc":
                continue
            at = (machine_used.home if where == "added" else cwd) / name
            assert not at.exists() or (name == "retinue.db-journal" and where != "store"), at


@needs("bwrap")
@pytest.mark.parametrize("user", USERS)
def test_a_library_program_with_its_store_in_the_current_directory_is_as_safe(user: str) -> None:
    with machine(user) as result:
        shell = ("shell", {"command": f"THERE=$PWD\n{SHELL}", "timeout_seconds": 40})
        store = ("retinue.db", "retinue.db-wal", "retinue.db.tools", "retinue.db.lock")
        files = [(name, {**args, "path": path}) for path in store for name, args in FILES]
        program, todo = library(
            result.folder, [shell, *files, ("list", {}), ("search", {"pattern": CANARY})]
        )
        output = said(result.run(program, todo, cwd=result.project))
        answers = output.split("\n=====\n")
        stopped(answers[0])
        assert all(any(word in answer for word in REFUSED) for answer in answers[1:-2]), answers[
            1:-2
        ]
        assert "notes.txt" in answers[-2] and "retinue.db" not in answers[-2]
        assert CANARY not in output
        assert not (result.project / "retinue.db-journal").exists()
        texts = [
            p.read_text()
            for p in (result.project / "retinue.db.tools/taken").glob("*/it")
            if p.is_file()
        ]
        assert "evil\n" in texts


FILES: list[tuple[str, dict[str, Any]]] = [
    ("read", {}),
    ("search", {"pattern": "."}),
    ("write", {"content": "evil"}),
    ("edit", {"old": "x", "new": "evil"}),
]


@needs("bwrap")
@pytest.mark.parametrize("where", ["home", "added", "store"])
def test_no_file_tool_shows_or_changes_what_is_ours_or_a_secret(where: str) -> None:
    with machine("this user") as home:
        cwd = home.home if where == "home" else home.project
        options = {
            "home": (),
            "added": ("--add-dir", str(home.home)),
            "store": ("--store", "retinue.db"),
        }[where]
        top = str(home.home) if where == "added" else "."
        ours = [
            f"{home.home}/{name}"
            for name in (*SECRETS[:-1], ".ssh", ".config", ".local/share/retinue")
        ]
        if where == "store":
            ours = [
                "retinue.db",
                "retinue.db-shm",
                "retinue.db.tools",
                "retinue.db.plans",
                "retinue.db.lock",
            ]
        above = [call("list", path=top, depth=6), call("find", pattern="**", path=top)]
        above += [
            call("search", pattern="canary", path=top, mode=mode)
            for mode in ("lines", "files", "count")
        ]
        calls = [*above, *file_calls(ours)]
        before = listing(home.home / ".ssh")
        with provider(hostile(*calls)) as env:
            result = home.run(
                "-m", "retinue", "run", "--yolo", "-p", *options, f"{CANARY}", cwd=cwd, **env
            )
        answers = said(result).split("\n=====\n")
        assert CANARY not in result.stdout
        for name in (".ssh/", "id\t", "retinue.db", ".netrc", "keyrings"):
            assert name not in answers[0] and name not in answers[1], (name, answers[:2])
        assert all(any(word in answer for word in REFUSED) for answer in answers[5:]), answers[5:]
        assert listing(home.home / ".ssh") == before
        unharmed(home)


def test_a_second_name_of_a_secret_is_the_secret(tmp_path: Path) -> None:
    with machine("this user") as home:
        (home.project / "innocent.txt").hardlink_to(home.home / ".netrc")
        (home.project / "link.txt").symlink_to(home.home / ".netrc")
        calls = [call("read", path="innocent.txt"), call("search", pattern="canary")]
        calls += [
            call("edit", path="innocent.txt", old="canaries", new="x"),
            call("read", path="link.txt"),
        ]
        with provider(hostile(*calls)) as env:
            result = home.run(
                "-m", "retinue", "run", "--yolo", "-p", "look", cwd=home.project, **env
            )
        assert CANARY not in said(result)


@needs("bwrap")
def test_a_backup_of_the_store_in_the_project_is_hidden_from_the_next_host_on() -> None:
    with machine("this user") as result:
        with provider(hostile()) as env:
            said(result.run("-m", "retinue", "run", "-p", TASK, cwd=result.project, **env))
            said(result.run("-m", "retinue", "backup", "copy.db", cwd=result.project, **env))
            said(result.run("-m", "retinue", "host", "stop", cwd=result.project, **env))
        assert CANARY.encode() in (result.project / "copy.db").read_bytes()
        calls = [
            call("shell", command="cat copy.db; echo evil > copy.db; echo the attack has ended")
        ]
        calls += [
            call("read", path="copy.db"),
            call("write", path="copy.db", content="evil"),
            call("list"),
        ]
        with provider(hostile(*calls)) as env:
            output = said(
                result.run(
                    "-m", "retinue", "run", "--yolo", "-p", "look", cwd=result.project, **env
                )
            )
        answers = output.split("\n=====\n")
        assert "the attack has ended" in answers[0] and CANARY not in output
        refused = "copy.db cannot be used: it belongs to Retinue"
        assert all(answer.startswith(refused) for answer in answers[1:3]), answers
        assert "copy.db" not in answers[3]
        assert CANARY.encode() in (result.project / "copy.db").read_bytes()


@needs("bwrap")
def test_a_hard_link_of_the_store_stops_commands_and_says_why(tmp_path: Path) -> None:
    with machine("this user") as home:
        with provider(hostile()) as env:
            said(
                home.run(
                    "-m",
                    "retinue",
                    "run",
                    "--store",
                    "retinue.db",
                    "-p",
                    "one",
                    cwd=home.project,
                    **env,
                )
            )
        (home.project / "other").hardlink_to(home.project / "retinue.db")
        with provider(hostile(call("shell", command="strings other; cat other"))) as env:
            result = home.run(
                "-m",
                "retinue",
                "run",
                "--yolo",
                "--store",
                "retinue.db",
                "-p",
                "two",
                cwd=home.project,
                **env,
            )
        assert "second name" in said(result) and "Nothing was run" in result.stdout


@needs("bwrap")
@pytest.mark.parametrize("is_there", [True, False])
def test_what_programs_run_from_the_local_folder_of_a_home_stays_as_it_is(is_there: bool) -> None:
    """Python imports from `lib`, desktops start what is in `share`."""
    parts = ("bin", "lib/python3/site-packages", "share/applications")
    with machine("this user") as result:
        local = result.home / ".local"
        for part in parts if is_there else ():
            (local / part).mkdir(parents=True, exist_ok=True)
        put = "; ".join(f"mkdir -p {part}; echo evil > {part}/evil" for part in parts)
        script = f"cd {local}; {put}; mv lib other; mv share other2; echo the attack has ended"
        for options, cwd in ((("--add-dir", str(local)), result.project), ((), local)):
            with provider(hostile(call("shell", command=script))) as env:
                stopped(
                    said(
                        result.run(
                            "-m", "retinue", "run", "--yolo", "-p", *options, "go", cwd=cwd, **env
                        )
                    )
                )
        evil = [path.relative_to(local).parts for path in local.rglob("evil")]
        assert not [
            path for path in evil if path[0] in ("bin", "lib", "share") and "taken" not in path
        ]
        assert not is_there or all((local / part).is_dir() for part in parts)
