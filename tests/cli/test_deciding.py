"""Decisions: all of it is shown, a choice is marked, Enter confirms; stray keys and pastes do
nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.terminal.decision import LATER, OPEN, Decision
from retinue.cli.terminal.typed_answer import MARK_SECONDS, QUIET_SECONDS
from retinue.testing import call
from retinue.view.cells import Cells
from retinue.view.diff_lines import diff_lines
from retinue.view.request_panel import PanelChoice, RequestPanel
from tests.cli.private_home import PrivateHome, private_home
from tests.cli.terminal import terminal
from tests.cli.test_live import confirm
from tests.cli.tty import tty
from tests.needs import needs

SCRIPT = "\n".join(f"echo step {n}" for n in range(60)) + "\nrm -rf \u202e/everything"


PERMISSION = (
    PanelChoice("y", "Allow this call once", "allows this once", needs_all=True),
    PanelChoice("A", "Allow it always", "allows it from now on", needs_all=True),
    PanelChoice("n", "Deny, with a reason", "denies", text=""),
)


def panel(body: str, choices: Any = PERMISSION, title: str = "who wants this:") -> RequestPanel:
    lines = tuple([Cells(line)] for line in body.split("\n")) if body else ()
    return RequestPanel(title=title, body=lines, choices=choices)


def decision(body: str = "shell\n  command: ls", choices: Any = PERMISSION) -> Decision:
    decision = Decision(panel(body, choices), lambda key, text: None)
    decision.frame(80, 20, 0.0)
    decision.drawn(0.0)
    return decision


def shown(decision: Decision, now: float, height: int = 20) -> str:
    return "\n".join(line.plain for line in decision.frame(80, height, now))


def test_a_mark_and_enter_decide_and_nothing_less_does() -> None:
    result = decision()
    assert result.press("enter", 1.0) is None, "nothing is marked"
    assert result.press("y", 2.0) is None and result.marked == 0
    assert result.press("enter", 2.0 + MARK_SECONDS / 2) is None, "the same movement of a hand"
    assert "↵ allows this once" in shown(result, 3.0)
    assert result.press("enter", 3.0) == "y"


@pytest.mark.parametrize("key", ["y", "A", "n", "o", "down", "enter", "paste:y\n"])
def test_what_was_typed_before_it_could_be_read_is_nothing(key: str) -> None:
    decision = Decision(panel("body"), lambda key, text: None)
    assert decision.press(key, 0.0) is None and decision.marked is None, (
        "it is not on the screen yet"
    )
    shown(decision, 0.1)
    decision.drawn(0.1)
    for n in range(1, 20):  # somebody who types on decides nothing, however long
        assert decision.press(key, 0.1 + n * QUIET_SECONDS / 2) is None and decision.marked is None
    assert "Choose" not in shown(decision, 4.0)
    assert "Choose" in shown(decision, 5.0)


@pytest.mark.parametrize(
    "sentence", ["yes", "why", "no, try it", "lay", "Any", "a1y", "it may", "y y y"]
)
@pytest.mark.parametrize("beat", [0.06, 0.2, 0.35])
def test_a_sentence_that_is_typed_for_somebody_else_decides_nothing(
    sentence: str, beat: float
) -> None:
    """Somebody writes on and does not look; the question has been there for long. Only a choice
    alone is one."""
    result, now = decision(), 10.0
    for letter in sentence:
        assert result.press(letter, now) is None
        now += beat
    assert result.press("enter", now) is None, "after a word Enter ends the word"
    assert result.press("n", now + 2) is None and result.press("enter", now + 3) == "n", (
        "who stops and chooses decides"
    )


def test_a_paste_never_decides() -> None:
    result = decision()
    result.press("paste:y", 1.0)
    assert result.marked is None
    result.press("y", 2.0)
    assert result.press("paste:\r", 3.0) is None
    question = decision("Which?", ())
    assert (
        question.press("paste:both\n", 1.0) is None
        and question.editor is not None
        and question.editor.text == "both "
    )
    assert question.press("enter", 2.0) == "both"


def test_arrows_mark_and_escape_leaves() -> None:
    result = decision()
    result.press("down", 1.0)
    result.press("down", 1.1)
    assert result.marked == 1
    result.press("left", 3.0)
    assert result.marked == 1
    result.press("z", 3.1)
    assert result.marked is None, "no choice: somebody writes"
    assert result.press("o", 4.0) == OPEN
    assert result.press("esc", 4.2) == LATER


def test_a_denial_takes_a_reason_once_the_mark_has_been_seen() -> None:
    result = decision()
    result.press("n", 1.0)
    assert "▸ n  Deny:" in shown(result, 1.1)
    for letter in "keep it":
        result.press(letter, 2.0)
    result.press("paste: so", 2.1)
    assert "▸ n  Deny: keep it so" in shown(result, 2.2)
    assert "↵ denies with this reason" in shown(result, 2.5)
    assert result.press("enter", 3.0) == "n" and result.text == "keep it so"
    other = decision()
    other.press("n", 1.0)
    assert other.press("enter", 2.0) == "n" and other.text == "", "a reason is not needed"


def test_of_a_long_change_the_line_says_how_much_was_not_seen() -> None:
    diff = "@@ -1,60 +1,60 @@\n" + "\n".join(f"-old {n}\n+new {n}" for n in range(30))
    change = RequestPanel(
        title="who wants to change a.py",
        signs="+30 -30",
        body=tuple(diff_lines(diff)),
        choices=(PanelChoice("y", "Allow this change once", "allows", counts_unseen=True),),
        is_diff=True,
    )
    decision = Decision(change, lambda key, text: None)
    first = shown(decision, 0.0)
    decision.drawn(0.0)
    assert "Allow this change once (45 of 60 lines not seen yet)" in first
    assert "45 more changed lines: PgDn, or o opens the full diff" in first
    for n in range(8):
        decision.press("pgdn", 1.0 + n)
        shown(decision, 1.0 + n)
    assert "Allow this change once\n" in shown(decision, 10.0)


def test_news_clear_what_was_marked_and_seen() -> None:
    result = decision()
    result.press("y", 1.0)
    result.renew(panel("something else")._replace(news="This has changed."))
    assert result.marked is None and "This has changed." in shown(result, 2.0)
    result.drawn(2.0)
    assert result.press("y", 2.1) is None and result.marked is None, "it has to be read first"
    result.over = "✓ done: allowed by Mira"
    assert "allowed by Mira" in shown(result, 9.0) and result.press("y", 9.0) == LATER


def test_an_answer_without_words_is_none() -> None:
    question = decision("Which?", ())
    for key in (" ", "enter"):
        assert question.press(key, 1.0) is None
    question.press("x", 1.0)
    assert question.press("enter", 1.0) == "x"


def test_a_call_must_have_been_seen_to_its_end_before_it_can_be_allowed() -> None:
    result = decision("\n".join(f"line {n}" for n in range(50)))
    for key in ("y", "A"):
        result.press(key, 1.0)
        assert result.marked is None and "Read to the end first" in shown(result, 1.0)
    result.press("n", 1.1)
    assert result.marked == 2, "a no needs no reading"
    result = decision("\n".join(f"line {n}" for n in range(50)))
    for n in range(20):
        result.press("pgdn", 1.2 + n / 10)
        shown(result, 1.2 + n / 10)
    assert "line 49" in shown(result, 4.0)
    result.press("y", 4.0)
    assert result.marked == 0


def test_another_size_clears_the_mark() -> None:
    result = decision()
    result.press("y", 1.0)
    result.frame(60, 20, 1.1)
    assert result.marked is None


def test_every_frame_fits() -> None:
    for width in (*range(1, 30), 40, 79, 200):
        for height in (*range(1, 20), 50):
            result = decision("x" * 1_000 + "\n\n" + "y z " * 500)
            frame = result.frame(width, height, 1.0)
            assert len(frame) <= height and all(line.cell_len <= width for line in frame), (
                width,
                height,
            )


def test_what_was_never_on_the_screen_cannot_be_permitted() -> None:
    """Whatever the size: a yes is taken only when every line of the call was in a frame, with its
    title and the yes."""
    body = "\n".join(f"line-{n}" for n in range(6))
    for width in (*range(10, 40), 80):
        for height in range(1, 24):
            title = "main 123456 wants to make this call:"
            decision = Decision(panel(body, title=title), lambda key, text: None)
            record = "\n".join(line.plain for line in decision.frame(width, height, 0.0))
            decision.drawn(0.0)
            for n in range(8):
                decision.press("pgdn", 1.0 + n)
                record += "\n".join(line.plain for line in decision.frame(width, height, 1.0 + n))
            decision.press("y", 20.0)
            record += "\n".join(line.plain for line in decision.frame(width, height, 20.5))
            if decision.press("enter", 21.0) == "y":
                lines = {line.strip() for line in record.split("\n")}
                assert {f"line-{n}" for n in range(6)} <= lines and "call:" in record, (
                    width,
                    height,
                )
            else:
                assert decision.is_too_small and (height < 16 or width < 20), (width, height)


class Writer:
    """Writes a file; then says that it did."""

    def __call__(self, request: Any) -> Any:
        is_done = any(type(m).__name__ == "ToolMessage" for m in request.messages)
        return "Written." if is_done else call("write", path="note.txt", content=SCRIPT)


def is_asking(home: PrivateHome) -> bool:
    return any(run["state"] == "needs_input" for run in home.runs())


@needs("tmux")
def test_stray_keys_in_top_permit_nothing_and_the_filter_is_seen(tmp_path: Path) -> None:
    with private_home(tmp_path, Writer()) as home, terminal(tmp_path, 100, 40) as screen:
        id = home.ok("run", "--bg", "--family", "none", "--permission-prompts", "wait", "write it")
        home.until(lambda: is_asking(home))
        screen.retinue("top", env=home.env, cwd=home.project)
        screen.until("◆ 1 needs you", "a answer")
        screen.type("jay\r")
        screen.until("Choose, then press ↵")
        screen.paste("y\n")
        screen.keys("Enter")
        screen.keys("Escape")
        screen.until(lambda text: "Allow this" not in text and "needs you" in text)
        screen.keys("Escape")  # what was typed ahead may have opened the run
        screen.until(" / filter")
        screen.keys("/")
        screen.until("1 of 1 rows")
        screen.type("flay")
        shown_now = screen.until(" / flay", "0 of 1 rows", "No row has all of this")
        assert "Allow this" not in shown_now, "what is typed is the filter"
        screen.keys("Escape")
        screen.until(" / filter", lambda text: text.count("write note.txt, 61 lines") == 2)
        assert is_asking(home) and not (home.project / "note.txt").exists()

        screen.keys("a")
        shown_now = screen.until(
            "Choose, then press ↵", "wants to create note.txt  +61 -0", "+ echo step 0"
        )
        assert "step 59" not in shown_now and "of 61 lines not seen yet)" in shown_now
        for _ in range(4):
            screen.keys("PPage")
        for _ in range(6):
            screen.keys("NPage")
        screen.until("rm -rf \\u202e/everything", lambda text: "not seen yet" not in text)
        screen.keys("y")
        screen.until("↵ allows this once")
        screen.keys("Enter")
        home.ok("wait", id)
        assert (home.project / "note.txt").read_text() == SCRIPT


@needs("tmux")
def test_stray_keys_in_the_live_view_permit_and_cancel_nothing(tmp_path: Path) -> None:
    with private_home(tmp_path, Writer()) as home, terminal(tmp_path, 100, 40) as screen:
        screen.retinue("run", "--family", "none", "write it", env=home.env, cwd=home.project)
        screen.until("needs you")
        screen.type("xy\r")  # opens the question whether to cancel, and no more
        screen.until("Choose, then press ↵")
        screen.keys("Escape")
        screen.type("ay\r")
        screen.until("more changed lines: PgDn")
        screen.until("Choose, then press ↵")
        assert is_asking(home) and not (home.project / "note.txt").exists()
        confirm(screen, "n", "denies")
        assert screen.code() == 0 and not (home.project / "note.txt").exists()


def test_what_was_typed_before_trust_asks_does_not_count(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    (home.project / "AGENTS.md").write_text("Be good.\n")
    with tty(home.env, home.project, "trust") as screen:
        screen.type("y\ny\ny\n")
        screen.until("[y/N] ")
        screen.type("y\nrm -rf x\n")  # a paste of several lines
        assert screen.ended() == 1
        assert "Nothing was trusted" in screen.text
    assert home.run("trust", "--check").returncode == 1
    with tty(home.env, home.project, "trust") as screen:
        screen.until("[y/N] ")
        screen.type("y\n")
        assert screen.ended() == 0
    assert home.run("trust", "--check").returncode == 0


def test_on_a_dumb_terminal_only_a_line_after_the_question_counts(tmp_path: Path) -> None:
    with (
        private_home(tmp_path, Writer()) as home,
        tty(
            {**home.env, "TERM": "dumb"}, home.project, "run", "--family", "none", "write it"
        ) as screen,
    ):
        screen.type("y\ny\n")
        screen.until("or a reason to deny: ")
        assert "rm -rf \\u202e/everything" in screen.text, "the whole of it was shown before"
        start = len(screen.raw)
        screen.type("\n")
        screen.until("or a reason to deny: ", start)
        assert is_asking(home)
        start = len(screen.raw)
        screen.type("y\ny\n")
        screen.until("or a reason to deny: ", start)
        assert is_asking(home)
        screen.type("y\n")
        assert screen.ended() == 0
        assert (home.project / "note.txt").read_text() == SCRIPT


@pytest.mark.parametrize("rows", [5, 7])
@pytest.mark.parametrize("command", ["run", "top"])
def test_on_a_low_terminal_nothing_is_permitted_unseen(
    tmp_path: Path, command: str, rows: int
) -> None:
    with private_home(tmp_path, Writer()) as home:
        words = ["run", "--family", "none", "write it"]
        if command == "top":
            home.ok("run", "--bg", "--permission-prompts", "wait", *words[1:])
            home.until(lambda: is_asking(home))
            words = ["top"]
        with tty(home.env, home.project, *words, size=(80, rows)) as screen:
            screen.until("1 needs you" if command == "top" else "needs you")
            screen.type("a")
            screen.until("too small")
            for key in ("\x1b[6~", "y", "\r"):
                screen.type(key)
                time.sleep(0.7)
            assert is_asking(home) and not (home.project / "note.txt").exists()
