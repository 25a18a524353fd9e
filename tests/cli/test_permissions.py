"""Who may permit what: nobody when headless, this terminal, or any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.private_home import private_home
from tests.cli.tty import tty

WRITE = call("write", path="made.txt", content="hello")


def writer(request: Any) -> Any:
    results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
    return results[-1].text if results else WRITE


def two_writes(request: Any) -> Any:
    calls = [call("write", path=name, content="x") for name in ("one.txt", "two.txt")]
    return calls if request.turn == 0 else "Done."


def test_without_anybody_to_ask_a_write_is_denied_and_reported(tmp_path: Path) -> None:
    with private_home(tmp_path, writer) as home:
        (line,) = home.lines("run", "-p", "--output-format", "json", "write it")
        (denial,) = line["permission_denials"]
        assert (denial["tool_name"], denial["tool_input"]["path"]) == ("write", "made.txt")
        assert not (home.project / "made.txt").exists()
        assert home.run("run", "-p", "--strict", "write it").returncode == 4


def test_a_mode_or_a_rule_permits_it(tmp_path: Path) -> None:
    with private_home(tmp_path, writer) as home:
        home.ok("run", "--permission-mode", "acceptEdits", "write it")
        assert (home.project / "made.txt").read_text() == "hello"
        (home.project / "made.txt").unlink()
        home.ok("run", "--allowed-tools", "Write(made.txt)", "write it")
        assert (home.project / "made.txt").read_text() == "hello"
        (home.project / "made.txt").unlink()
        home.ok("run", "--yolo", "--disallowed-tools", "Write", "write it")
        assert not (home.project / "made.txt").exists()


def test_another_terminal_can_permit_what_a_run_asks(tmp_path: Path) -> None:
    with private_home(tmp_path, writer) as home:
        id = home.ok("run", "--bg", "write it")
        home.until(lambda: home.runs()[0]["state"] == "needs_input")
        assert "needs    main: write made.txt, 1 line" in home.ok("show", id).splitlines()
        assert "wants to create made.txt  +1 -0" in home.ok("approve")
        question = json.loads(home.ok("approve", "--json"))[0]["id"]
        assert question[:8] in home.ok("approve")
        unsaid = home.run("approve", id, "y")
        assert (
            unsaid.returncode == 1
            and f"retinue approve {question[:8]} y" in unsaid.stderr
            and "made.txt" in unsaid.stdout
        )
        assert home.runs()[0]["state"] == "needs_input"
        assert home.real("approve", question[:8]).returncode == 0
        home.ok("wait", id)
        assert (home.project / "made.txt").read_text() == "hello"
        nothing = home.run("approve", id)
        assert nothing.returncode == 1 and "has no open question" in nothing.stderr


def test_a_yes_permits_the_call_that_was_read_and_no_other(tmp_path: Path) -> None:
    with private_home(tmp_path, two_writes) as home:
        id = home.ok("run", "--bg", "write them")
        home.until(lambda: len(json.loads(home.ok("approve", "--json"))) == 2)
        read = json.loads(home.ok("approve", "--json"))[0]
        for answer in ("y", "no", "always"):
            result = home.run("approve", id, answer)
            assert result.returncode == 1 and "2 questions are open" in result.stderr
        home.ok("approve", id, "--question", read["id"], "no")
        late = home.run("approve", id, "--question", read["id"], "y")
        assert late.returncode == 1 and "has no open question" in late.stderr
        with tty(home.env, home.project, "approve", id, "y") as screen:
            screen.until("Allow this call? [y/N] ")
            assert "two.txt" in screen.text and "one.txt" not in screen.text
            screen.type("y\n")
            assert screen.ended() == 0
        home.ok("wait", id)
        assert (home.project / "two.txt").exists() and not (home.project / "one.txt").exists()


def test_an_answer_goes_to_the_question_that_it_names(tmp_path: Path) -> None:
    with private_home(tmp_path, two_writes) as home:
        id = home.ok("run", "--bg", "write them")
        home.until(lambda: len(json.loads(home.ok("approve", "--json"))) == 2)
        one, two = json.loads(home.ok("approve", "--json"))
        assert json.loads(home.ok("approve", two["id"][:6], "--json")) == [two]
        short = home.run("approve", two["id"][:5], "y")
        assert short.returncode == 2, "five characters name no question"
        assert "allowed: Edit two.txt?" in home.run("approve", two["id"][:8], "y").stderr
        assert json.loads(home.ok("approve", "--json")) == [one]
        late = home.run("approve", two["id"], "no")
        assert late.returncode == 2 and "may already have been answered" in late.stderr
        assert json.loads(home.ok("approve", "--json")) == [one], "a late answer hits nothing else"
        home.ok("approve", one["id"], "no", "not", "this", "one")
        home.ok("wait", id)
        assert (home.project / "two.txt").exists() and not (home.project / "one.txt").exists()


def test_a_question_named_in_a_terminal_is_shown_before_it_is_answered(tmp_path: Path) -> None:
    with private_home(tmp_path, writer) as home:
        id = home.ok("run", "--bg", "write it")
        home.until(lambda: home.runs()[0]["state"] == "needs_input")
        (question,) = json.loads(home.ok("approve", "--json"))
        with tty(home.env, home.project, "approve", question["id"][:8]) as screen:
            screen.until("y, always, no WHY, show or later")
            assert "made.txt" in screen.text
            assert home.runs()[0]["state"] == "needs_input"
            screen.type("y\n")
            assert screen.ended() == 0
        home.ok("wait", id)
        assert (home.project / "made.txt").read_text() == "hello"


def test_another_terminal_can_refuse_it_with_a_reason(tmp_path: Path) -> None:
    with private_home(tmp_path, writer) as home:
        id = home.ok("run", "--bg", "write it")
        home.until(lambda: home.runs()[0]["state"] == "needs_input")
        home.ok("approve", id, "--deny", "not", "there")
        assert "not there" in home.ok("attach", id)
        assert not (home.project / "made.txt").exists()


def test_a_question_is_answered_in_words(tmp_path: Path) -> None:
    def asker(request: Any) -> Any:
        results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
        return f"So: {results[-1].text}" if results else call("ask", question="Which colour?")

    with private_home(tmp_path, asker) as home:
        id = home.ok("run", "--bg", "paint it")
        home.until(lambda: home.runs()[0]["state"] == "needs_input")
        (question,) = json.loads(home.ok("approve", "--json"))
        empty = home.run("approve", question["id"])
        assert (
            empty.returncode == 2 and f"retinue approve {question['id'][:8]} TEXT" in empty.stderr
        )
        home.ok("approve", question["id"], "dark", "green")
        assert home.ok("attach", id) == "So: dark green"
        assert "No one is available" in home.ok("run", "-p", "paint it")


def test_ps_lists_what_is_open_first_and_says_who_needs_you(tmp_path: Path) -> None:
    with private_home(tmp_path, writer) as home:
        home.ok("run", "-p", "write it")
        home.ok("run", "--bg", "write it")
        home.until(lambda: any(run["state"] == "needs_input" for run in home.runs()))
        home.ok("run", "-p", "write it")
        short = next(run["short"] for run in home.runs() if run["state"] == "needs_input")
        first, *rest = home.ok("ps").splitlines()[1:]
        last = rest.pop()
        assert first.startswith(short) and "◆ needs you" in first
        assert len(rest) == 2 and all("✓ done" in line for line in rest)
        assert last == f"1 run needs you: retinue approve {short}"
        assert {run["state"] for run in home.lines("ps", "--jsonl")} == {"needs_input", "completed"}
        home.ok("cancel", short)
