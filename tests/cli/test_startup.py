"""Starting is quick because little is loaded; what is loaded is checked, not how long it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.cli.command_list import COMMANDS
from tests.cli.house import House, house

HEAVY = (
    "asyncio",
    "aiohttp",
    "rich",
    "textual",
    "yaml",
    "mcp",
    "starlette",
    "prompt_toolkit",
    "retinue.api",
)
LOOK = """
import json, sys
from retinue.cli.main import main
main(sys.argv[1:])
sys.stderr.write(json.dumps(list(sys.modules)))
"""


def loaded(home: House, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *arguments],
        env=home.env,
        cwd=home.project,
        capture_output=True,
        text=True,
    )
    return set(json.loads(done.stderr[done.stderr.index("[") :]))


@pytest.mark.parametrize(
    "arguments", [("--version",), ("ps",), ("ps", "--tree", "--json"), ("--help",)]
)
def test_nothing_heavy_is_loaded(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with house(tmp_path) as home:
        if arguments[0] == "ps":
            home.ok("run", "hello")
        assert loaded(home, *arguments) & set(HEAVY) == set()


def test_the_version_needs_no_parser(tmp_path: Path) -> None:
    home = House(tmp_path)
    assert "click" not in loaded(home, "--version")
    assert home.real("--version").stdout.startswith("retinue ")
    assert home.real("run", "--version").returncode == 2


@pytest.mark.parametrize("name", [n for n in COMMANDS if n != "fake-llm"])
def test_every_command_explains_itself(tmp_path: Path, name: str) -> None:
    done = House(tmp_path).run(name, "--help")
    assert done.returncode == 0 and "Usage: retinue" in done.stdout and not done.stderr
    assert COMMANDS[name]


def test_help_lists_every_command_that_there_is(tmp_path: Path) -> None:
    text = House(tmp_path).ok("--help")
    assert all(f"  {name} " in text for name in COMMANDS)
