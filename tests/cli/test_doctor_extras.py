"""What `doctor` looks for is what the package brings: no more, and no less."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from retinue.cli.doctor.machine_checks import EXTRAS, LIBRARIES
from tests.cli.house import House

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
    assert {name.lower() for name in LIBRARIES} == names(PROJECT["dependencies"])


def test_an_installation_with_all_extras_lacks_nothing(tmp_path: Path) -> None:
    house = House(tmp_path)
    (row,) = [r for r in house.run("doctor").stdout.splitlines() if "extras" in r]
    assert "not installed" not in row, row
