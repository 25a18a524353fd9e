"""Both type checkers, in strict mode, on programs that use the public surface: what is right is
clean, what is wrong is found where it is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = ROOT / "examples" / "programs"
FILES = [HERE / "inferred.py", *sorted(PROGRAMS.glob("*.py")), HERE / "mistakes.py"]


def run(*command: str | Path) -> str:
    """What a checker prints; it ends with 1 when it found something."""
    environ = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    process = subprocess.run(
        [*map(str, command)], cwd=HERE, env=environ, capture_output=True, text=True, timeout=280
    )
    assert process.returncode in (0, 1), process.stdout + process.stderr
    return process.stdout


def found_by_mypy(tmp_path: Path) -> dict[tuple[str, int], str]:
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    options = ("--no-error-summary", "--python-version=3.11", f"--cache-dir={tmp_path / 'cache'}")
    mypy = Path(sys.executable).parent / "mypy"
    text = run(mypy, "--config-file", settings, *options, *FILES)
    lines = re.findall(r"^(.+?):(\d+): error: (.*)$", text, re.MULTILINE)
    # What comes of a wrong line is not a mistake of its own.
    return {
        (Path(name).name, int(n)): what for name, n, what in lines if "no-any-return" not in what
    }


def found_by_pyright(tmp_path: Path) -> dict[tuple[str, int], str]:
    folder = Path(sys.prefix)
    settings = {
        "include": [os.path.relpath(name, tmp_path) for name in FILES],
        "extraPaths": [str(ROOT / "src")],
        "venvPath": str(folder.parent),
        "venv": folder.name,
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "reportMissingModuleSource": False,
    }
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(settings))
    out = json.loads(
        run(Path(sys.executable).parent / "pyright", "--outputjson", "--project", project)
    )
    return {
        (Path(d["file"]).name, d["range"]["start"]["line"] + 1): d["message"].splitlines()[0]
        for d in out["generalDiagnostics"]
        if d["severity"] == "error"
    }


@pytest.mark.parametrize("checker", [found_by_mypy, found_by_pyright])
def test_what_is_right_is_clean_and_every_mistake_is_found(checker: object, tmp_path: Path) -> None:
    assert callable(checker)
    places = checker(tmp_path)
    lines = (HERE / "mistakes.py").read_text().splitlines()
    marked = {("mistakes.py", n) for n, line in enumerate(lines, 1) if "# MISTAKE" in line}
    assert len(marked) > 20
    assert {place: places[place] for place in places if place not in marked} == {}
    assert marked - set(places) == set(), "mistakes that were not found"
