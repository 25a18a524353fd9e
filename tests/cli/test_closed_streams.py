"""A program that is started without standard streams works, and no file gets their numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.private_home import SECONDS, PrivateHome


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["ps", "doctor --offline", "run -m offline/explorer map"])
def test_a_command_needs_no_stream(tmp_path: Path, command: str, closed: str) -> None:
    home = PrivateHome(tmp_path)
    (home.project / "a.py").write_text("x = 1\n")
    try:
        process = subprocess.run(
            ["sh", "-c", f'"$0" -m retinue {command} {closed}', sys.executable],
            cwd=home.project,
            env=home.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert process.returncode == 0 and "Internal error" not in process.stderr, process.stderr
    finally:
        home.close()


def test_a_pipe_that_cannot_take_marks_gets_ascii(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    (home.project / "a.py").write_text("x = 1\n")
    try:
        encoding = {"PYTHONIOENCODING": "ascii:backslashreplace"}
        result = home.real("run", "-m", "offline/explorer", "map", env=encoding)
        assert result.returncode == 0 and result.stderr.isascii() and "\\u" not in result.stderr
        assert "\\x" not in result.stderr and "+ done in " in result.stderr
    finally:
        home.close()
