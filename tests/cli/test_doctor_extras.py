"""What `doctor` looks for is what the package brings: no more, and no less."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from retinue.cli.doctor import machine_checks
from retinue.cli.doctor.machine_checks import EXTRAS, required
from tests.cli.private_home import PrivateHome

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\s<>=!~;\[]", r)[0].lower().replace("-", "_") for r in requirements}


def test_each_extra_is_what_the_package_declares() -> None:
    declared = {
        name: names(parts)
        for name, parts in PROJECT["optional-dependencies"].items()
        if name != "dev"
    }
    assert {name: set(modules) for name, (modules, _) in EXTRAS.items()} == declared


def test_the_libraries_are_what_the_package_declares() -> None:
    assert names(required()) == names(PROJECT["dependencies"])


def test_an_installation_with_all_extras_lacks_nothing(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    (row,) = [r for r in home.run("doctor", "-v").stdout.splitlines() if "extras" in r]
    assert "not installed" not in row, row


def test_a_library_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.metadata.version

    def version(name: str) -> str:
        if name == "aiohttp":
            raise importlib.metadata.PackageNotFoundError(name)
        return there(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    run = PrivateHome(tmp_path).run("doctor", "--offline")
    (row,) = [r for r in run.stdout.splitlines() if "libraries" in r]
    assert "broken" in row and row.endswith("missing: aiohttp") and run.returncode == 1


@pytest.mark.parametrize(("version", "state"), [("2.37.9", "degraded"), ("2.38.0", "ok")])
def test_a_git_that_cannot_merge_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, state: str
) -> None:
    monkeypatch.setattr(machine_checks, "_version", lambda program: f"git version {version}")
    run = PrivateHome(tmp_path).run("doctor", "--offline", "-v")
    (row,) = [r for r in run.stdout.splitlines() if r.split()[2:3] == ["git"]]
    assert state in row and ("take turns" in row) is (state == "degraded")
