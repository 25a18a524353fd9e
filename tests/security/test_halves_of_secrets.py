"""Half a secret is not recognised as one: no tool takes a secret apart before it is cleaned."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.private_home import PrivateHome, private_home
from tests.needs import needs

KEY = "sk-ant-api03-" + "Qw7Zx9Lm2Np4Rt6Yv8Bk3Jd5Hf1Gs0Ac" * 3


def commit(home: PrivateHome, name: str, text: str) -> None:
    (home.project / name).write_text(text)
    if not (home.project / ".git/HEAD").exists():
        (home.project / ".git").rmdir()
        run(home, "init", "-q")
    run(home, "add", "-A")
    run(home, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", f"add {KEY}")


def run(home: PrivateHome, *words: str) -> None:
    subprocess.run(
        ["git", *words],
        cwd=home.project,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": "/none"},
    )


def told(tmp_path: Path, prepare: Any, *calls: Any) -> list[str]:
    """What a model is told by these calls."""
    records = list[str]()

    def script(request: Any) -> Any:
        if request.turn == 0:
            return list(calls)
        records.extend(m.text for m in request.messages if type(m).__name__ == "ToolMessage")
        return "Done."

    with private_home(tmp_path, script) as home:
        home.env["ANTHROPIC_API_KEY"] = KEY
        prepare(home)
        result = home.run("run", "--yolo", "Go.")
        assert result.returncode == 0, result.stderr
        stored = b"".join(f.read_bytes() for f in (tmp_path / "data").rglob("*") if f.is_file())
    assert KEY[:40].encode() not in stored
    return records


@needs("bwrap", "git")
def test_git_shows_no_half_of_a_key(tmp_path: Path) -> None:
    def prepare(home: PrivateHome) -> None:
        commit(home, ".env", f"KEY={KEY}\n" + "#\n" * 6 + "DEBUG=0\n")
        (home.project / ".env").write_text(f"KEY={KEY}\n" + "#\n" * 6 + "DEBUG=1\n")

    formats = ["%<(40,trunc)%s", "%<(40,ltrunc)%s", "%<(40,mtrunc)%s", "%w(30)%s", "%f"]
    calls = [
        call("git", args=["diff"]),
        *(call("git", args=["log", f"--format={one}"]) for one in formats),
    ]
    record = told(tmp_path, prepare, *calls)
    assert len(record) == len(calls) and "DEBUG=1" in record[0]
    assert not [text for text in record if KEY[13:30] in text or KEY[-20:] in text]


@needs("bwrap", "git")
def test_wrapped_base64_of_a_key_is_shown_by_no_tool(tmp_path: Path) -> None:
    text = base64.encodebytes(b"x" * 40 + KEY.encode() + b"y" * 30).decode()
    calls = [
        call("search", pattern="."),
        call("search", pattern=text.split("\n")[1][:9]),
        call("git", args=["log", "-p"]),
        call("git", args=["blame", "-s", "s.yaml"]),
        call("git", args=["blame", "s.yaml"]),
        call("shell", command="cat -n s.yaml; grep -n . s.yaml"),
    ]
    record = told(tmp_path, lambda home: commit(home, "s.yaml", text), *calls)
    assert len(record) == len(calls)
    assert not [one for one in record if text.split("\n")[1] in one or text[56:76] in one]
