"""Room is shared fairly, no character is cut in two, and a frame is valid whatever is cut out of
it."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.answer_fit import fit_here, fitting
from retinue.core.answer_layout import LayoutPage, LayoutPart, Long, Sheet, closed
from retinue.formats.fair_cut import boundary, clip, cut, fair, missing_in

HOSTILE = [
    '"' * 9_000,
    "\\" * 9_000,
    "\x00\x1b\n" * 3_000,
    "😀" * 9_000,
    "e\u0301" * 4_500,
    "",
    "short",
]


@given(st.lists(st.integers(0, 10_000), max_size=50), st.integers(-5, 100_000))
def test_short_ones_keep_what_they_need_and_the_others_share_the_rest_equally(
    sizes: list[int], room: int
) -> None:
    reply = fair(sizes, room)
    assert all(0 <= g <= size for g, size in zip(reply, sizes, strict=True))
    assert sum(reply) <= max(0, room)
    short = [g for g, size in zip(reply, sizes, strict=True) if g < size]
    if short:
        assert max(short) - min(short) <= 1
        assert sum(reply) == max(0, room), "what is there is used"
        assert max(reply) <= max(short) + 0 or all(g <= max(short) for g in reply if g not in sizes)


@pytest.mark.parametrize(
    "whole",
    [
        "e\u0301",
        "👩\u200d👩\u200d👧",
        "👍\U0001f3fd",
        "🇩🇪",
        "\r\n",
        "\u1112\u1161\u11ab",
        "❤\ufe0f",
    ],
)
def test_a_character_is_never_cut_in_two(whole: str) -> None:
    text = f"ab{whole * 3}cd"
    ends = {2, *(2 + len(whole) * n for n in range(4)), 0, 1, len(text) - 1, len(text)}
    for at in range(len(text) + 1):
        k = boundary(text, at)
        assert k <= at and k in ends, (whole, at, k)
        assert clip(text, at).split("\n[truncated: ")[0] == text[:k]


def test_a_tower_of_marks_does_not_take_everything_with_it() -> None:
    assert boundary("a" * 100 + "\u0301" * 500, 400) == 400


@given(st.text(), st.integers(0, 300))
def test_a_cut_keeps_to_its_room_and_says_how_much_is_missing(text: str, room: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    output = cut(text, room, "artifact x")
    if len(text) <= room:
        assert output == text
        return
    head, _, note = output.rpartition("\n[truncated: ")
    assert text.startswith(head) and note.endswith("; full text in artifact x]")
    assert len(output) <= max(room, len(output) - len(head))


def sheet(texts: list[str]) -> Sheet:
    rows = [
        {"id": n, "state": "done" if n % 3 else "failed", "text": Long(t)}
        for n, t in enumerate(texts)
    ]
    return Sheet({"rows": rows}, "rows", lambda row: row["state"])


def run(laid: Any, room: int) -> tuple[str, dict[str, str]]:
    """The answer, and what was kept, by its name."""
    rest: dict[str, str] = {}
    steps = fitting(laid, room)
    try:
        text = next(steps)
        while True:
            name = f"artifact {len(rest)}"
            rest[name] = text
            text = steps.send(name)
    except StopIteration as result:
        return str(result.value), rest


@pytest.mark.parametrize("room", [1, 100, 1_000, 5_000, 65_536])
@pytest.mark.parametrize("n", [1, 7, 200, 2_000])
def test_json_stays_json_whatever_is_cut(n: int, room: int) -> None:
    texts = [HOSTILE[i % len(HOSTILE)][: 400_000 // n] for i in range(n)]
    text, rest = run(sheet(texts), room)
    value = json.loads(text)
    n_not_shown = value.get("cut", {}).get("not_shown", 0)
    assert len(value["rows"]) + n_not_shown == n, "everybody is shown, or counted"
    for row, whole in zip(value["rows"], texts, strict=False):
        assert row["state"] == ("done" if row["id"] % 3 else "failed")
        if row["text"] != whole:
            name = (
                row["text"].rpartition("full text in ")[2].rstrip("]")
                if "cut" not in value
                else value["cut"]["whole"]
            )
            assert whole in rest[name] or json.loads(rest[name])["rows"][row["id"]]["text"] == whole
    assert len(text) <= max(room, 250)


def test_rows_that_fit_without_their_texts_are_all_shown() -> None:
    """Four hundred notes would not fit; four hundred states do."""
    text, _ = run(sheet(["x" * 1_000] * 400), 65_536)
    value = json.loads(text)
    assert len(value["rows"]) == 400 and all(
        row["text"].endswith("[truncated]") for row in value["rows"]
    )
    assert value["cut"] == {"whole": "artifact 0"}


def test_short_texts_stay_whole_beside_long_ones() -> None:
    text, rest = run(sheet(["short", "y" * 50_000, "z" * 50_000, "brief"]), 10_000)
    rows = [row["text"] for row in json.loads(text)["rows"]]
    assert (rows[0], rows[3]) == ("short", "brief")
    assert abs(len(rows[1]) - len(rows[2])) <= 2 and 9_000 < len(text) <= 10_000
    assert list(rest.values()) == ["y" * 50_000, "z" * 50_000]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=300), min_size=1, max_size=8), st.integers(1, 2_000))
def test_any_texts_in_any_room_are_json(texts: list[str], room: int) -> None:
    value = json.loads(run(sheet(texts), room)[0])
    assert len(value["rows"]) + value.get("cut", {}).get("not_shown", 0) == len(texts)


@pytest.mark.parametrize("open", ["```\n", "~~~python\n", "   ````\n```\n"])
def test_a_block_of_code_that_is_cut_does_not_swallow_those_behind_it(open: str) -> None:
    parts = tuple(
        LayoutPart(f"### t{n} (completed)", Long(f"{open}{'x' * 500}\n" * 9), "completed")
        for n in range(5)
    )
    text = fit_here(LayoutPage("## Results", parts), 3_000)
    fence, records = "", []
    for line in text.splitlines():
        mark = line.strip()
        if not fence and mark.startswith(("```", "~~~")):
            fence = mark[: len(mark) - len(mark.lstrip(mark[0]))]
        elif fence and mark == fence:
            fence = ""
        elif not fence and line.startswith("### "):
            records.append(line)
    assert len(records) == 5 and not fence
    assert len(text) <= 3_000


def test_what_is_closed_is_left_alone() -> None:
    for text in ("", "a", "```\nx\n```", "```a`b```", "~~~\n```\n~~~"):
        assert closed(text) == text


def test_every_title_of_a_page_is_seen_with_its_state() -> None:
    parts = tuple(LayoutPart(f"### t{n} (failed)", Long("e" * 9_000), "failed") for n in range(200))
    text, rest = run(LayoutPage("## Results", parts), 65_536)
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        p.title for p in parts
    ]
    assert len(text) <= 65_536 and len(rest) == 200
    text, rest = run(LayoutPage("## Results", parts), 1_000)
    assert (
        "more hidden (" in text
        and "failed); full text in artifact 0]" in text
        and len(text) <= 1_000
    )


def test_marks_stay_on_their_letters_in_json() -> None:
    text, _ = run(sheet(["e\u0301" * 9_000, "x"]), 1_000)
    part = json.loads(text)["rows"][0]["text"].split("\n[truncated")[0]
    assert part.endswith("e\u0301") and unicodedata.combining(part[-1])


def test_a_text_that_was_cut_by_an_older_version_is_counted_whole() -> None:
    for note in (
        "\n[cut: 90 of 190 characters are not shown; the whole is in artifact x]",
        "\n[truncated: 90 of 190 characters hidden; full text in artifact x]",
    ):
        text = "a" * 100 + note
        assert cut(text, 60, note=missing_in(text)).endswith(" of 190 characters hidden]")
