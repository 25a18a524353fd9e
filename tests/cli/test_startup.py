"""Starting is quick because little is loaded; what is loaded is checked, not how long it takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from retinue.cli.command_list import COMMANDS, GROUPS
from retinue.cli.commands.run import command as run_command
from tests.cli.private_home import PrivateHome, private_home

HEAVY = (
    "asyncio",
    "aiohttp",
    "rich",
    "textual",
    "yaml",
    "mcp",
    "starlette",
    "prompt_toolkit",
    "msgspec",
    "retinue.api",
)
LOOK = """
import json, sys
from retinue.cli.main import main
main(sys.argv[1:])
sys.stderr.write(json.dumps(list(sys.modules)))
"""


def loaded(home: PrivateHome, *arguments: str) -> set[str]:
    process = subprocess.run(
        [sys.executable, "-c", LOOK, *arguments],
        env=home.env,
        cwd=home.project,
        capture_output=True,
        text=True,
    )
    return set(json.loads(process.stderr[process.stderr.index("[") :]))


@pytest.mark.parametrize(
    "arguments", [("--version",), ("ps",), ("ps", "--tree", "--json"), ("--help",)]
)
def test_nothing_heavy_is_loaded(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with private_home(tmp_path) as home:
        if arguments[0] == "ps":
            home.ok("run", "hello")
        assert loaded(home, *arguments) & set(HEAVY) == set()


def test_a_command_that_asks_the_host_does_not_load_what_the_host_runs(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.ok("run", "hello")
        modules = loaded(home, "run", "-q", "hello again")
        assert "retinue.host.client" in modules
        engine = {"retinue.runtime.engine", "retinue.maintenance", "retinue.agent", "retinue.api"}
        assert modules & engine == set()


def test_the_version_needs_no_parser(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    assert "click" not in loaded(home, "--version")
    assert home.real("--version").stdout.startswith("retinue ")
    assert home.real("run", "--version").returncode == 2


@pytest.mark.parametrize("name", [n for n in COMMANDS if n != "fake-llm"])
def test_every_command_explains_itself(tmp_path: Path, name: str) -> None:
    run = PrivateHome(tmp_path).run(name, "--help")
    assert run.returncode == 0 and "Usage: retinue" in run.stdout and not run.stderr
    assert COMMANDS[name]


def test_help_lists_every_command_that_there_is(tmp_path: Path) -> None:
    text = PrivateHome(tmp_path).ok("--help")
    assert all(f"  {name} " in text for name in COMMANDS)


def test_help_has_groups_and_examples(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    text = home.ok("--help")
    assert [text.index(f"\n{title}:") for title in GROUPS] == sorted(
        text.index(f"\n{title}:") for title in GROUPS
    )
    assert "Examples:\n  retinue run" in text
    run = home.ok("run", "--help")
    for title in ("Model and agent", "Limits", "Permissions", "Output", "Exit codes", "Examples"):
        assert f"\n{title}:" in run


@pytest.mark.parametrize(
    "flag",
    [
        "--bg",
        "--agents",
        "--timeout",
        "--write",
        "--output-last-message",
        "--ax-screen-reader",
        "--sandbox",
        "--allowedTools",
        "--json-schema",
        "-n",
    ],
)
def test_a_spelling_of_another_program_is_accepted_and_not_shown(flag: str) -> None:
    context = click.Context(run_command)
    output = run_command.get_help(context)
    assert not re.search(rf"(?<![\w-]){flag}(?![\w-])", output)
    assert any(flag in parameter.opts for parameter in run_command.params)


def test_a_renamed_flag_keeps_its_variable() -> None:
    variables = {p.name: p.envvar for p in run_command.params}
    assert variables["timeout"] == ["RETINUE_MAX_TIME", "RETINUE_TIMEOUT"]
    assert variables["background"] == ["RETINUE_BACKGROUND", "RETINUE_BG"]


def test_stop_says_what_stops_a_run_and_what_stops_the_host(tmp_path: Path) -> None:
    run = PrivateHome(tmp_path).run("stop")
    assert run.returncode == 2
    assert "retinue cancel RUN" in run.stderr and "retinue host stop" in run.stderr


def test_the_host_says_whether_it_is_running(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        assert home.run("host", "status").returncode == 1
        home.ok("run", "hello")
        assert json.loads(home.ok("host", "status", "--json"))["running"] is True
        assert str(home.host_pid()) in home.ok("host", "status")
        assert home.run("host", "log").returncode == 0
