"""The column grid of a tree: the same for the live view, `top`, `show` and `ps --tree`. A wider
terminal has more columns, never another meaning, and its last column stays empty."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace
from rich.cells import cell_len

from retinue.view import format as view_format
from retinue.view.cells import Cells, Line, crop, cut, fit_path, fit_words, fits, right, size
from retinue.view.run_row import RunRow
from retinue.view.state_marks import MARKS, loudest

SILENT_MS = 60_000
LONG_SILENT_MS = 180_000
STATE, NUMBER, SHORT = 12, 7, 4
NOTHING_YET = "\N{EN DASH}"
_PATH = re.compile(r"[^\s/]+/\S*")
DEEPEST = 4
"""From the next level on, `…` replaces the guides."""


class Columns(NamedTuple):
    """Widths at one width of the terminal; 0 leaves a column out."""

    name: int
    words: int = 0
    turn: int = 0
    context: int = 0
    time: int = 0
    tokens: int = 0
    cost: int = 0


def columns_at(width: int) -> Columns:
    """For a terminal of so many columns."""
    if width >= 120:
        return Columns(26, width - 76, 5, 4, NUMBER, NUMBER, NUMBER)
    if width >= 100:
        return Columns(22, width - 61, time=NUMBER, tokens=NUMBER, cost=NUMBER)
    if width >= 80:
        return Columns(20, width - 51, time=NUMBER, cost=NUMBER)
    if width >= 60:
        return Columns(20, width - 43, cost=NUMBER)
    return Columns(20, time=SHORT) if width >= 40 else Columns(max(8, width - 1))


class TreeRow(NamedTuple):
    """A row in its place: `guides` before it, `n_folded` agents that it represents alone, and
    whether the keys act on it."""

    row: RunRow
    guides: str = ""
    n_folded: int = 0
    is_selected: bool = False


def clock(row: RunRow) -> str:
    """How long a run took, or is at work; of an open one in whole seconds, so that it ticks."""
    if row.is_over:
        return view_format.span(row.elapsed_ms)
    return view_format.span(row.elapsed_ms // 1_000 * 1_000) if row.elapsed_ms >= 1_000 else "0s"


def cost(row: RunRow) -> str:
    """What its tree has cost: nothing where no model is asked, a dash before anything is spent."""
    if row.is_offline:
        return ""
    return row.cost if row.tree_tokens else NOTHING_YET


def tree_line(at: TreeRow, width: int, *, has_prices: bool = True) -> Line:
    """One row. If no price is known, tokens are shown instead of the cost."""
    row, c, mark = at.row, columns_at(width), MARKS[at.row.mark]
    if width < 40:
        is_told = row.mark in ("needs_input", "failed")
        state = [Cells(f" {mark.word}", mark.role)] if is_told else []
        lead = _lead(at, at.guides[-2:])
        return crop([*lead, *_name(at, c.name - size(state) - size(lead), width), *state], width)
    lead = _lead(at, at.guides)
    out = [*lead, *_name(at, c.name - size(lead), width), Cells(" ")]
    out += [
        Cells(mark.word, mark.role),
        Cells(" " * max(0, STATE - cell_len(mark.word)) + " "),
    ]
    numbers = _numbers(row, c, has_prices=has_prices)
    if c.words:
        out += _words(row, max(0, width - 1 - size(out) - size(numbers)))
    return crop([*out, *numbers], width)


def _numbers(row: RunRow, c: Columns, *, has_prices: bool) -> Line:
    """The columns at the right, each with a space before it if there is text."""
    quiet, out = "quiet" if row.is_over else "", Line()
    if c.turn:
        out.append(Cells(f" {right(turns(row) if row.turn else '', c.turn)}", "quiet"))
        out.append(Cells(f" {right(_context(row), c.context)}", "quiet"))
    if c.time:
        cell_text = right(view_format.short_span(row.elapsed_ms), SHORT) if c.time == SHORT else ""
        out.append(Cells(cell_text or f" {right(clock(row), c.time)}", quiet))
    tokens = row.all_tokens if row.tree_tokens else ""
    if c.tokens:
        out.append(Cells(f" {right(tokens, c.tokens)}", quiet))
    if c.cost:
        cell_text = cost(row) if has_prices or c.tokens else tokens or NOTHING_YET
        out.append(Cells(f" {right(cell_text, c.cost)}", quiet))
    return out


def _lead(at: TreeRow, bars: str) -> Line:
    mark = MARKS[at.row.mark]
    return [
        Cells("▸" if at.is_selected else " ", "title"),
        Cells(bars, "quiet"),
        Cells(mark.glyph, mark.role, is_glyph=True),
        Cells(" "),
    ]


def _name(at: TreeRow, room: int, width: int) -> Line:
    """The name, how many are folded below it and, where there is room, the role."""
    row, more = at.row, f" +{at.n_folded}" if at.n_folded else ""
    label = row.label if row.depth else f"{row.short} {row.title}"
    shorten = fit_path if _PATH.fullmatch(label) else fits
    name = shorten(label, max(1, room - len(more)))
    role = ""
    if width >= 120 and row.agent and row.agent != row.label:
        # Those that a family makes are named after their parent.
        kind = row.agent.rpartition(".")[2]
        role = fits(f" {kind}", max(0, room - len(more) - cell_len(name)))
    tone = "quiet" if row.is_over else ""
    if row.needs_you or at.is_selected:
        tone = "title"
    pad = " " * max(0, room - cell_len(name) - cell_len(role) - len(more))
    return [Cells(name, tone), Cells(role, "quiet"), Cells(f"{more}{pad}")]


def _words(row: RunRow, width: int) -> Line:
    quiet = "quiet" if row.is_over else ""
    if row.silent_ms < SILENT_MS:
        return [Cells(fit_words(row.now, width), quiet)]
    silent = f"silent {view_format.span(row.silent_ms // 1_000 * 1_000)}"
    is_text = row.mark == "thinking" and not row.is_writing
    rest = ", no text yet" if is_text else f": {row.now}"
    tone = "title" if row.silent_ms >= LONG_SILENT_MS else ""
    return [Cells(silent, tone), Cells(cut(rest, max(0, width - cell_len(silent))), quiet)]


def folded_row(row: RunRow, below: Iterable[RunRow]) -> RunRow:
    """A row that others are folded into: of these it tells what is louder than itself, when it only
    waits."""
    others = list(below)
    name = loudest(row.mark, (other.mark for other in others))
    if name == row.mark:
        return row
    most = next(other for other in others if other.mark == name)
    return replace(row, mark=most.mark, now=most.now, needs_you=most.needs_you)


def turns(row: RunRow) -> str:
    return f"{row.turn}/{row.max_turns}" if row.max_turns else str(row.turn)


def _context(row: RunRow) -> str:
    return f"{100 * row.context // row.window}%" if row.window and row.context else ""


def guides(rows: Sequence[RunRow], base: int) -> list[str]:
    """The lines of a tree before each row. They are drawn for the visible rows, whatever is
    omitted."""
    more: dict[int, bool] = {}
    out: list[str] = []
    for row in reversed(rows):
        depth = max(0, row.depth - base)
        bars = "".join("│ " if more.get(level) else "  " for level in range(1, depth))
        own = "├ " if more.get(depth) else "└ "
        own = own if depth else ""
        out.append(bars + own if depth <= DEEPEST else f"…{' ' * (2 * DEEPEST - 3)}{own}")
        more[depth] = True
        for level in [k for k in more if k > depth]:
            del more[level]
    out.reverse()
    return out
