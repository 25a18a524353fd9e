"""Sentences for a screen reader: no glyphs, no short forms, and requests as prompts with words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from retinue.view.request_panel import RequestPanel
from retinue.view.spoken import CHOOSE, spoken_end, spoken_request, spoken_time
from tests.cli.private_home import private_home
from tests.cli.terminal import terminal
from tests.needs import needs


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (37, "37 milliseconds"),
        (1_000, "1 second"),
        (53_000, "53 seconds"),
        (130_000, "2 minutes 10 seconds"),
        (7_200_000, "2 hours"),
        (3_661_000, "1 hour 1 minute"),
    ],
)
def test_times_are_words(ms: int, text: str) -> None:
    assert spoken_time(ms) == text


def test_a_change_is_told_by_its_size() -> None:
    panel = RequestPanel(
        title="who wants to wants to change a.py",
        who="who wants to",
        wants="change a.py",
        is_diff=True,
        signs="+38 -11",
        n_added=38,
        n_removed=11,
    )
    assert spoken_request(panel) == [
        "who wants to needs you. It wants to change a.py:",
        "38 lines added, 11 removed.",
    ]


def test_the_last_line_has_no_glyph() -> None:
    line = "✓ done in 24 s · $0.03 · 8.1k tokens · retinue show 91c2"
    assert spoken_end(line) == "Done in 24 s, $0.03, 8.1k tokens, retinue show 91c2."


@needs("tmux")
def test_a_request_is_shown_left_for_later_or_denied_in_words(tmp_path: Path) -> None:
    def talk(request: Any) -> Any:
        texts = [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]
        if texts:
            return "Done without it."
        return call("edit", path="a.txt", old="one", new="two\nthree")

    with private_home(tmp_path, talk) as home, terminal(tmp_path, 80, 24) as screen:
        (home.project / "a.txt").write_text("one\n")
        flags = ("run", "--screen-reader", "--family", "none", "Change it.")
        screen.retinue(*flags, env=home.env, cwd=home.project)
        screen.until("main needs you. It wants to change a.txt:", "2 lines added, 1 removed.")
        screen.until(CHOOSE.rstrip())
        screen.type("show")
        screen.keys("Enter")
        screen.until("three", lambda text: text.count(CHOOSE.rstrip()) == 2)
        screen.type("no keep it")
        screen.keys("Enter")
        screen.until("Done without it.", "Done in ")
        assert screen.code() == 0
        text = screen.text()
        assert (
            not any(glyph in text for glyph in "◆✓●◉")
            and (home.project / "a.txt").read_text() == "one\n"
        )
