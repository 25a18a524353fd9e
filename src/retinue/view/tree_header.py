"""The two lines above a tree: the task with what it takes, and how many agents there are of each
state."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len

from retinue.view.cells import Cells, Line, crop, fits, right, size
from retinue.view.grid import NUMBER, clock, columns_at, cost
from retinue.view.run_row import RunRow
from retinue.view.state_marks import MARKS, counted

FOLDED = ("queued", "waiting", "paused", "rate_limited", "retrying", "at_limit", "cancelled")
"""Which counts give way first, where not all of them have room."""


def header(row: RunRow, width: int, more: str = "", *, has_prices: bool = True) -> Line:
    """The task, how long it takes and what it costs; from 120 columns on what else is known of
    it."""
    c, usable = columns_at(width), max(19, width - 1)
    amounts = []
    if c.time == NUMBER:
        amounts.append(right(clock(row), NUMBER))
    if c.tokens:
        amounts.append(right(row.all_tokens if row.tree_tokens else "", NUMBER))
    if width >= 40:
        cell_text = "offline" if row.is_offline else cost(row)
        if not has_prices and not c.tokens and row.tree_tokens:
            cell_text = row.all_tokens
        amounts.append(right(cell_text, NUMBER))
    numbers = " ".join(amounts)
    room = usable - 1 - cell_len(numbers) - bool(numbers)
    what = row.task or row.label
    about = f"  ·  run {row.short}{more}" if width >= 120 else ""
    if cell_len(about) > room - min(cell_len(what), 24):
        about = ""
    title = fits(what, room - cell_len(about))
    pad = " " * max(0, room - cell_len(title) - cell_len(about))
    out = [
        Cells(" "),
        Cells(title, "title"),
        Cells(about, "quiet"),
        Cells(f"{pad} {numbers}"),
    ]
    return crop(out, width)


def counts_line(marks: Mapping[str, int], width: int, note: str = "") -> Line:
    """`◆ 1 needs you  ✗ 1 failed  ● 3 working`: the loudest first. What has no room is folded into
    `+3`, then words go, from the right."""
    usable = max(19, width - 1)
    counts = counted(marks, is_merged=width < 120)
    rest, bare = 0, 0
    while True:
        parts = [_count(name, n, i < len(counts) - bare) for i, (name, n) in enumerate(counts)]
        have = sum(2 + size(part) for part in parts) - 1
        tail = f"  +{rest}" if rest else ""
        if have + len(tail) <= usable or len(counts) <= 1:
            break
        entry = next((item for name in FOLDED for item in counts if item[0] == name), None)
        if entry is not None:
            counts.remove(entry)
            rest += entry[1]
        elif bare < len(counts) - 2:
            bare += 1
        elif rest:
            rest = 0
        else:
            counts.pop()
    out: Line = [Cells(" ")]
    for i, part in enumerate(parts):
        out += [*([Cells("  ")] if i else []), *part]
    out.append(Cells(tail, "quiet"))
    have = size(out)
    if note and have + cell_len(note) + 2 <= usable:
        out.append(Cells(right(note, usable - have), "quiet"))
    return crop(out, width)


def _count(name: str, n: int, has_word: bool) -> Line:
    mark = MARKS[name]
    if name == "needs_input":
        return [Cells(f"{mark.glyph} {n} {mark.word}", mark.role, is_glyph=True)]
    word = f" {mark.word}" if has_word else ""
    return [Cells(mark.glyph, mark.role, is_glyph=True), Cells(f" {n}{word}", mark.role)]
