"""Screens in ASCII, and notes that fit a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from retinue.cli.terminal.note_lines import note_lines
from retinue.testing import call
from retinue.view.ascii_marks import has_marks, in_ascii
from retinue.view.cells import plain
from retinue.view.grid import TreeRow, guides, tree_line
from retinue.view.state_marks import MARKS
from retinue.view.tree_header import header
from tests.cli.private_home import private_home
from tests.cli.terminal import terminal
from tests.cli.test_frames import LEAD, ROWS
from tests.cli.test_live import Staff
from tests.needs import needs


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_tree_in_ascii_has_the_same_columns(width: int) -> None:
    rows = [LEAD, *(row for row, _ in ROWS)]
    lines = [plain(header(LEAD, width))]
    lines += [
        plain(tree_line(TreeRow(row, bars), width))
        for row, bars in zip(rows, guides(rows, 0), strict=True)
    ]
    for line in lines:
        text = in_ascii(line)
        assert text.isascii() and cell_len(text) == cell_len(line), (line, text)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (" ├ ✓ docs  done", " |-+ docs  done"),
        (" └ ◷ x", " \\-~ x"),
        ("in every HTTP… 10m 30s", "in every HTT.. 10m 30s"),
        ("…/http/client.py    1s", "../http/client.py   1s"),
        ("2m 02s   ≤$0.15", "2m 02s  <=$0.15"),
        ("2m 02s ≤$100.15", "2m 02s <$100.15"),
        ("spent  ≤$1", "spent <=$1"),
        ("▸◆ 1 needs you · ↵", ">? 1 needs you - enter"),
        ("budget ██▒░", "budget ##=."),
    ],
)
def test_each_mark_has_an_ascii_form(text: str, target: str) -> None:
    assert in_ascii(text) == target
    assert all(in_ascii(mark.glyph) == mark.plain for mark in MARKS.values())


@pytest.mark.parametrize(
    ("environ", "is_there"),
    [
        ({}, True),
        ({"LANG": "de_DE.UTF-8"}, True),
        ({"LANG": "en_US"}, True),
        ({"LANG": "C"}, False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8"}, True),
        ({"LANG": "C.UTF-8", "LC_ALL": "POSIX"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({"LANG": "ja_JP.UTF-8"}, False),
        ({"LANG": "en_US.UTF-8", "TERM": "linux"}, False),
    ],
)
def test_what_a_terminal_can_show_is_what_it_says(environ: dict[str, str], is_there: bool) -> None:
    assert has_marks(environ) is is_there
    assert not has_marks(environ, "latin-1")


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("✓ done · 1 agent", ["✓ done · 1 agent"]),
        ("retinue: a word and another", ["retinue: a word and", "         another"]),
        ("✓ done in 24 s · $0.03 · show 91c2", ["✓ done in 24 s", "  $0.03 · show 91c2"]),
        ("See it: `retinue ps`.", ["See it:", "  `retinue ps`."]),
        ("Look `ps a b c`, ok.", ["Look `ps a b c`, ok."]),
        ("Look: `ps a b c`, ok.", ["Look: `ps a b c`,", "  ok."]),
        ("  cost    of a run", ["  cost    of a run"]),
        ("  cost    of a longer run", ["  cost    of a", "          longer run"]),
    ],
)
def test_a_long_note_goes_on_below_its_text(text: str, targets: list[str]) -> None:
    assert note_lines(text, 20) == targets


@needs("tmux")
def test_the_live_view_and_lists_are_in_ascii_when_asked_to(tmp_path: Path) -> None:
    staff = Staff("agents", "models")
    with private_home(tmp_path, staff) as home, terminal(tmp_path) as screen:
        screen.retinue(
            "run", "--ascii", "--family", "fanout", "Lead them", env=home.env, cwd=home.project
        )
        staff.release("models")
        screen_text = screen.until("|-o agents", "\\-+ models", "enter open", "? keys")
        assert screen_text.isascii(), screen_text
        with terminal(tmp_path) as other:
            other.retinue("ps", env={**home.env, "LANG": "C"}, cwd=home.project)
            other.code()
            assert other.text().isascii() and " o thinking" in other.text()
        staff.release()
        screen.code()
        assert screen.text().isascii()


@needs("tmux")
def test_nothing_that_is_said_of_a_run_is_broken_by_the_terminal(tmp_path: Path) -> None:
    script = [call("read", path="a"), "Done."]
    with private_home(tmp_path, script) as home, terminal(tmp_path, 60, 24) as screen:
        screen.retinue("run", "--family", "none", "Go.", env=home.env, cwd=home.project)
        assert screen.code() == 0
        first, second, *_ = screen.lines()
        assert first.startswith("retinue ") and not first.endswith("·")
        assert second.startswith("  ") and "mode manual" in f"{first}{second}"
