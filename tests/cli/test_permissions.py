"""Who may permit what: nobody when headless, this terminal, or any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.house import house

WRITE = call("write", path="made.txt", content="hello")


def writer(heard: Any) -> Any:
    results = [m for m in heard.messages if type(m).__name__ == "Result"]
    return results[-1].text if results else WRITE


def test_without_anybody_to_ask_a_write_is_denied_and_reported(tmp_path: Path) -> None:
    with house(tmp_path, writer) as home:
        (told,) = home.lines("run", "-p", "--output-format", "json", "write it")
        (denial,) = told["permission_denials"]
        assert (denial["tool_name"], denial["tool_input"]["path"]) == ("write", "made.txt")
        assert not (home.project / "made.txt").exists()
        assert home.run("run", "-p", "--strict", "write it").returncode == 4


def test_a_mode_or_a_rule_permits_it(tmp_path: Path) -> None:
    with house(tmp_path, writer) as home:
        home.ok("run", "--permission-mode", "acceptEdits", "write it")
        assert (home.project / "made.txt").read_text() == "hello"
        (home.project / "made.txt").unlink()
        home.ok("run", "--allowed-tools", "Write(made.txt)", "write it")
        assert (home.project / "made.txt").read_text() == "hello"
        (home.project / "made.txt").unlink()
        home.ok("run", "--yolo", "--disallowed-tools", "Write", "write it")
        assert not (home.project / "made.txt").exists()


def test_another_terminal_can_permit_what_a_run_asks(tmp_path: Path) -> None:
    with house(tmp_path, writer) as home:
        id = home.ok("run", "--bg", "write it")
        home.until(lambda: home.runs()[0]["state"] == "needs_input")
        assert "asks:" in home.ok("show", id)
        assert "permission" in home.ok("approve") and "made.txt" in home.ok("approve")
        assert home.real("approve", id).returncode == 0
        home.ok("wait", id)
        assert (home.project / "made.txt").read_text() == "hello"
        nothing = home.run("approve", id)
        assert nothing.returncode == 1 and "not asking" in nothing.stderr


def test_another_terminal_can_refuse_it_with_a_reason(tmp_path: Path) -> None:
    with house(tmp_path, writer) as home:
        id = home.ok("run", "--bg", "write it")
        home.until(lambda: home.runs()[0]["state"] == "needs_input")
        home.ok("approve", id, "--deny", "not", "there")
        assert "not there" in home.ok("attach", id)
        assert not (home.project / "made.txt").exists()


def test_a_question_is_answered_in_words(tmp_path: Path) -> None:
    def asker(heard: Any) -> Any:
        results = [m for m in heard.messages if type(m).__name__ == "Result"]
        return f"So: {results[-1].text}" if results else call("ask", question="Which colour?")

    with house(tmp_path, asker) as home:
        id = home.ok("run", "--bg", "paint it")
        home.until(lambda: home.runs()[0]["state"] == "needs_input")
        home.ok("approve", id, "dark", "green")
        assert home.ok("attach", id) == "So: dark green"
        assert "Nobody is there" in home.ok("run", "-p", "paint it")
