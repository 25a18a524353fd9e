"""The marks of states: a glyph of one cell, a word and a colour, each of which says it alone."""

from __future__ import annotations

from collections import Counter

import pytest
from rich.cells import cell_len
from rich.style import Style

from retinue.core.state_names import ENDS, FAILURES, SHOWN
from retinue.view.state_marks import COLORS, MARKS, counted, mark, mark_name, style


def test_every_state_of_the_record_has_a_mark() -> None:
    for state in {*SHOWN.values(), *ENDS, "paused"}:
        assert mark(state).word and mark(state).role
    assert {mark(state).word for state in FAILURES} == {"failed"}
    assert mark("needs_input").word == "needs you" and mark("completed").word == "done"


def test_a_glyph_is_one_cell_and_has_its_own_character_where_only_ascii_can_be_shown() -> None:
    assert all(
        cell_len(m.glyph) == 1 and m.plain.isascii() and len(m.plain) == 1 for m in MARKS.values()
    )
    by_glyph = {m.glyph: m.plain for m in MARKS.values()}
    assert len(set(by_glyph.values())) == len(by_glyph), "two glyphs, two characters"
    words = Counter(m.word for m in MARKS.values())
    assert set(words.values()) == {1}


@pytest.mark.parametrize(
    ("state", "more", "word"),
    [
        ("running", {"is_thinking": True}, "thinking"),
        ("running", {}, "working"),
        ("waiting", {"trouble": "rate_limit"}, "rate limited"),
        ("waiting", {"trouble": "network"}, "retrying"),
        ("waiting", {}, "waiting"),
        ("incomplete", {"stop": "budget"}, "stopped at limit"),
        ("incomplete", {"stop": "no_report"}, "failed"),
        ("timed_out", {"stop": "timeout"}, "failed"),
        ("cancelling", {}, "stopping"),
    ],
)
def test_a_screen_tells_more_apart_than_the_record(
    state: str, more: dict[str, str], word: str
) -> None:
    assert MARKS[mark_name(state, **more)].word == word  # type: ignore[arg-type]


def test_the_loudest_is_counted_first_and_what_stops_before_all_else_while_a_tree_stops() -> None:
    counts = {
        "completed": 5,
        "queued": 2,
        "thinking": 1,
        "working": 2,
        "failed": 1,
        "needs_input": 1,
    }
    assert counted(counts, is_merged=True) == [
        ("needs_input", 1),
        ("failed", 1),
        ("working", 3),
        ("queued", 2),
        ("completed", 5),
    ]
    assert ("thinking", 1) in counted(counts, is_merged=False)
    stopping = {"cancelling": 2, "cancelled": 5, "completed": 5, "failed": 1}
    assert [name for name, _ in counted(stopping, is_merged=True)] == [
        "cancelling",
        "cancelled",
        "completed",
        "failed",
    ]


@pytest.mark.parametrize("theme", [*COLORS])
def test_only_needs_you_has_a_ground_and_no_colour_is_one_that_a_palette_hides(theme: str) -> None:
    for name, it in MARKS.items():
        for is_glyph in (True, False):
            text = Style.parse(style(it.role, theme, is_glyph=is_glyph) or "none")
            assert (text.bgcolor is not None) == (name == "needs_input")
            number = text.color.number if text.color is not None else None
            assert number is None or (number < 16 and number != 8)
        bare = Style.parse(style(it.role, theme, color=False) or "none")
        assert bare.color is None and bare.bgcolor is None
    assert style("you", theme, color=False) == "reverse"
