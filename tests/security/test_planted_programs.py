"""A directory that nobody trusts holds modules and programs with the names of those that Retinue
uses: none is run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.core.redaction import Redactor
from retinue.sandbox import trusted_programs as programs
from retinue.testing import call
from retinue.tools.mcp_client.protocol import ServerLimits
from retinue.tools.mcp_client.transports.stdio import StdioTransport
from tests.cli.private_home import PrivateHome, private_home
from tests.needs import needs

MODULES = (
    "apsw",
    "asyncio",
    "click",
    "hashlib",
    "msgspec",
    "rich",
    "secrets",
    "ssl",
    "subprocess",
    "tempfile",
    "yaml",
)


def plant_modules(project: Path, mark: Path) -> None:
    for name in MODULES:
        code = f"open({str(mark)!r}, 'a').write({name!r} + '\\n')\nraise ImportError('planted')\n"
        (project / f"{name}.py").write_text(code)


@pytest.mark.parametrize("path", ["", ":", ".", "lib"])
def test_modules_of_the_project_are_not_imported(tmp_path: Path, path: str) -> None:
    with private_home(tmp_path) as home:
        mark = tmp_path / "mark"
        plant_modules(home.project, mark)
        (home.project / "lib").mkdir()
        plant_modules(home.project / "lib", mark)
        env = {"PYTHONPATH": f"{home.env['PYTHONPATH']}:{path}"} if path else {}
        for command in (("run", "-p", "Work."), ("ps",), ("doctor", "--json")):
            result = home.real(*command, env=env)
            assert result.returncode in (0, 1), (command, result.stdout, result.stderr)
            assert not mark.exists(), (command, mark.read_text())
        assert "Done." in home.real("run", "-p", "Work.", env=env).stdout


def test_the_installed_program_imports_nothing_of_the_project(tmp_path: Path) -> None:
    program = os.path.join(os.path.dirname(sys.executable), "retinue")
    if not os.path.exists(program):
        pytest.skip("the program is not installed beside this Python")
    with private_home(tmp_path) as home:
        mark = tmp_path / "mark"
        plant_modules(home.project, mark)
        for name in ("typing", "importlib", "__future__", "re"):
            (home.project / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
        result = _installed(home, program, "run", "-p", "Work.")
        assert "Done." in result
        assert not mark.exists(), mark.read_text()


def _installed(home: PrivateHome, program: str, *arguments: str) -> str:
    import subprocess

    process = subprocess.run(
        [program, *arguments], cwd=home.project, env=home.env, capture_output=True, text=True
    )
    assert process.returncode == 0, (process.stdout, process.stderr)
    return process.stdout


def test_the_host_does_not_stay_in_the_project(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.env["RETINUE_IDLE_SECONDS"] = "30"
        assert home.real("run", "-p", "Work.").returncode == 0
        pid = home.host_pid()
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        home.real("host", "stop")


def plant_programs(folder: Path, mark: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("bwrap", "rg", "git", "grep", "sh", "python3", "mkdir"):
        (folder / name).write_text(f'#!/bin/sh\necho {name} >> {mark}\nexec /usr/bin/{name} "$@"\n')
        (folder / name).chmod(0o755)


@needs("bwrap", "rg", "git")
def test_programs_of_the_project_are_not_run_by_the_host(tmp_path: Path) -> None:
    def script(request: Any) -> Any:
        messages = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
        calls = [
            call("search", pattern="x"),
            call("shell", command="echo it ran"),
            call("git", args=["log"]),
        ]
        return (
            calls[len(messages)]
            if len(messages) < len(calls)
            else "\n".join(m.text for m in messages)
        )

    with private_home(tmp_path, script) as home:
        mark = tmp_path / "mark"
        plant_programs(home.project / ".venv" / "bin", mark)
        plant_programs(home.project, mark)
        (home.folder / "link").symlink_to(home.project / ".venv" / "bin")
        home.env["PATH"] = f"{home.folder}/link:{home.project}/.venv/bin:.::{home.env['PATH']}"
        assert "it ran" in home.real("run", "--yolo", "-p", "Work.").stdout
        assert home.real("doctor", "--offline").returncode in (0, 1)
        # What the command itself finds on its PATH is its own affair; it is in the sandbox.
        assert not mark.exists(), mark.read_text()


def test_a_program_is_only_taken_from_where_no_command_can_write(tmp_path: Path) -> None:
    plant_programs(tmp_path / "bin", tmp_path / "mark")
    result, why = programs.find("rg", f"{tmp_path}/bin")
    assert (result, "not used" in why) == ("", True)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for path in ("", ".", "bin", str(tmp_path / "open"), f"{tmp_path}/missing"):
        assert programs.find("rg", path)[0] == "", path
    assert programs.find("sh", f"{tmp_path}/bin:/usr/bin:/bin")[0] in ("/usr/bin/sh", "/bin/sh")
    assert programs.find("sh", "/usr/bin:/bin", ("/usr", "/bin"))[0] == "", "a root is a root"


def test_a_program_in_a_protected_place_of_a_home_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    plant_programs(tmp_path / ".cargo" / "bin", tmp_path / "mark")
    for folder in (tmp_path / ".cargo", tmp_path / ".cargo" / "bin"):
        folder.chmod(0o755)
    assert programs.find("rg", f"{tmp_path}/.cargo/bin")[0] == f"{tmp_path}/.cargo/bin/rg"


def test_a_server_that_is_named_without_a_path_is_a_program_of_the_machine(tmp_path: Path) -> None:
    plant_programs(tmp_path / ".venv" / "bin", tmp_path / "mark")

    def found(path: str, name: str = "sh") -> str | None:
        env = {"PATH": path}
        wire = StdioTransport(
            name,
            (),
            env=env,
            cwd=str(tmp_path),
            within=str(tmp_path),
            limits=ServerLimits(),
            redactor=Redactor(),
        )
        return wire._on_path()

    assert found(f"{tmp_path}/.venv/bin:.::/bin") == "/bin/sh"
    assert found(f"{tmp_path}/.venv/bin:.:", "rg") is None
    linked = tmp_path.with_name(f"{tmp_path.name}-bin")
    linked.mkdir()
    (linked / "rg").symlink_to(tmp_path / ".venv/bin/rg")
    assert found(str(linked), "rg") is None, "what the link leads to is in the workspace"
