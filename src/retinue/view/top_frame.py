"""The frame of `retinue top`: what needs you on a line of its own, then open runs in the order of
their start, then those that have ended. A row stays where it is until the user sorts again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len

from retinue.view import format as view_format
from retinue.view.ascii_marks import as_shown
from retinue.view.cells import Cells, Line, crop, cut, fits, right, size
from retinue.view.grid import TreeRow, columns_at, folded_row, guides, tree_line
from retinue.view.row_filter import matches, meant
from retinue.view.run_row import RunRow
from retinue.view.state_marks import MARKS
from retinue.view.tree_header import counts_line

SORTS: dict[str, Callable[[RunRow], Any]] = {
    "start": lambda row: 0,
    "cost": lambda row: -(row.tree_usd or 0.0),
    "tokens": lambda row: -row.tree_tokens,
    "time": lambda row: -row.elapsed_ms,
    "state": lambda row: list(MARKS).index(row.mark),
}
KEYS = (
    ("/", "filter"),
    ("s", "sort"),
    ("z", "fold"),
    ("↵", "open"),
    ("a", "answer"),
    ("m", "msg"),
    ("x", "cancel"),
    ("q", "quit"),
    ("?", "keys"),
)
HELP = (
    "↑ ↓ k j  select a row; Home and End the first and the last",
    "↵        open the selected agent: its task, its text and its tool calls, live",
    "a tab    what needs you, oldest first: a letter marks a choice, ↵ decides",
    "← → z    fold and unfold what is below a run",
    "/        filter: words, or state:failed agent:models model:sonnet; ↵ keeps, esc clears",
    "s        sort runs by start, cost, tokens, time or state",
    "u        put runs that have ended last",
    "m  M     send a message: read at the next turn, or interrupting the current one",
    "x        cancel the selected agent and those below it, after a question",
    "r  R     retry a failed one as a new run, after a question; with a message",
    "l        all its messages, in your pager",
    "q        quit; runs continue",
)
ENDED = " ended in the last hour"


@dataclass
class TopFacts:
    """What `top` knows of a project. `requests` are the runs that need a person, longest wait
    first."""

    name: str = ""
    marks: Mapping[str, int] = field(default_factory=dict)
    today: str = ""
    per_minute: str = ""
    bars: str = ""
    n_open: int = 0
    clock: str = ""
    requests: Sequence[RunRow] = ()


@dataclass
class TopList:
    """Where a person is in the list. `placed` remembers who is among those that have ended."""

    selected: str = ""
    first: int = 0
    wanted: str = ""
    is_filtering: bool = False
    is_help: bool = False
    sort: str = "start"
    folded: dict[str, bool] = field(default_factory=dict)
    placed: dict[str, bool] = field(default_factory=dict)
    said: str = ""

    def settle(self) -> None:
        """Put every row where it belongs now."""
        self.placed.clear()

    def order(self, rows: Sequence[RunRow], room: int) -> list[TreeRow | None]:
        """The rows that are shown, in their order; None is the line before those that have
        ended."""
        trees: dict[str, list[RunRow]] = {}
        for row in rows:
            trees.setdefault(row.root, []).append(row)
        tops = [tree[0] for tree in trees.values()]
        for top in tops:
            # Who has ended may have left others at work.
            self.placed.setdefault(top.id, all(row.is_over for row in trees[top.root]))
        n_open = sum(len(trees[top.root]) for top in tops if not self.placed[top.id])
        has_room = n_open <= room
        live = [top for top in tops if not self.placed[top.id]]
        over = [top for top in tops if self.placed[top.id]]
        out: list[TreeRow | None] = []
        for part in (live, over):
            rows_shown = [
                row
                for top in sorted(part, key=SORTS[self.sort])
                for row in self._tree(trees[top.root], has_room and part is live)
            ]
            if part is over and rows_shown:
                out.append(None)
            out += rows_shown
        return out

    def _tree(self, rows: Sequence[RunRow], is_unfolded: bool) -> list[TreeRow]:
        """One run with those below it, as far as they are not folded away."""
        top = rows[0]
        owner: dict[str, str] = {}
        below: dict[str, list[RunRow]] = {}
        rows_kept: list[RunRow] = []
        for row in rows:
            if self.wanted.strip():
                rows_kept += [row] if matches(row, self.wanted) else []
            elif (above := owner.get(row.parent)) is not None:
                owner[row.id] = above
                below[above].append(row)
            else:
                rows_kept.append(row)
                if self.folded.get(row.id, row is top and not is_unfolded) and row.n_children:
                    owner[row.id] = row.id
                    below[row.id] = []
        return [
            TreeRow(
                folded_row(row, below.get(row.id, ())),
                bars,
                len(below.get(row.id, ())),
                row.id == self.selected,
            )
            for row, bars in zip(rows_kept, guides(rows_kept, top.depth), strict=True)
        ]

    def move(self, key: str, ids: Sequence[str]) -> None:
        """Select another row."""
        if not ids:
            return
        at = ids.index(self.selected) if self.selected in ids else -1
        to = {"up": at - 1, "down": at + 1, "home": 0, "end": len(ids) - 1}[key]
        self.selected = ids[max(0, min(len(ids) - 1, to))]


def top_frame(
    facts: TopFacts, at: TopList, rows: Sequence[RunRow], width: int, height: int
) -> list[Line]:
    """The whole screen, line by line."""
    room = max(1, height - 5)
    order = at.order(rows, room)
    ids = [row.row.id for row in order if row is not None]
    if at.selected not in ids:
        at.selected = ids[0] if ids else ""
        order = at.order(rows, room)
    place = next((n for n, row in enumerate(order) if row and row.row.id == at.selected), 0)
    at.first = max(0, min(at.first, place, len(order) - room), place - room + 1)
    lines = [*_head(facts, width), _headings(width)]
    if at.is_help:
        lines += [[Cells(fits(f" {text}", width - 1), "quiet")] for text in HELP][:room]
    elif not order:
        sentence = "No row has all of this." if at.wanted else "No runs yet. Start one: retinue run"
        lines.append([Cells(f" {sentence}", "quiet")])
    else:
        lines += [
            tree_line(row, width) if row is not None else [Cells(ENDED, "quiet")]
            for row in order[at.first : at.first + room]
        ]
    lines += [[] for _ in range(height - 1 - len(lines))]
    return [crop(line, width) for line in [*lines, _foot(at, len(ids), len(rows), width)]]


def _head(facts: TopFacts, width: int) -> list[Line]:
    name = cut(facts.name, 12)
    quiet = {k: n for k, n in facts.marks.items() if k not in ("needs_input", "completed")}
    counts = counts_line(quiet, width - 13 - len(facts.clock) - 1)
    first: Line = [Cells(" "), Cells(name, "title"), *counts]
    first.append(Cells(right(facts.clock, max(1, width - 1 - size(first))), "quiet"))
    parts = [f"today {facts.today}"] if facts.today else []
    parts += [f"{facts.per_minute} tokens/min"] if facts.per_minute else []
    parts.append(f"{facts.n_open} run{'' if facts.n_open == 1 else 's'} open")
    second: Line = [Cells(fits(f" {' · '.join(parts)}", width - 1))]
    if width >= 120 and facts.bars:
        second.append(Cells(right(facts.bars, max(1, width - 1 - size(second)))))
    return [first, second, _needs(facts, width)]


def _needs(facts: TopFacts, width: int) -> Line:
    """The line that always exists, so that a new request moves nothing."""
    if not facts.requests:
        return [Cells(" Nothing needs you.", "quiet")]
    oldest, n = facts.requests[0], len(facts.requests)
    lead: Line = [Cells(" "), Cells(f"◆ {n} needs you", "you")]
    key: Line = [Cells("a", "title"), Cells(" answer", "quiet")]
    waits = view_format.span(oldest.idle_ms // 1_000 * 1_000) if oldest.idle_ms >= 1_000 else "0s"
    text = f": {oldest.label} waits {waits}, {oldest.now}"
    room = width - 1 - size(lead) - size(key) - 2
    return [*lead, Cells(cut(text, room)), Cells("  "), *key]


def _headings(width: int) -> Line:
    c = columns_at(width)
    if width < 60:
        return [Cells("   AGENT", "quiet")]
    text = f"   {'AGENT':<{c.name - 2}}{'STATE':<13}"
    numbers = [("TURN", c.turn), ("CTX", c.context), ("TIME", c.time), ("TOKENS", c.tokens)]
    tail = "".join(f" {name:>{w}}" for name, w in [*numbers, ("COST", c.cost)] if w)
    return [Cells(text + cut("NOW", width - 1 - cell_len(text) - len(tail)) + tail, "quiet")]


def _foot(at: TopList, n_shown: int, n_rows: int, width: int) -> Line:
    if at.said and not at.is_filtering:
        return [Cells(f" {at.said}")]
    if not at.is_filtering and not at.wanted:
        out: Line = [Cells(" ")]
        for key, what in KEYS:
            part = [Cells(as_shown(key), "title"), Cells(f" {what}", "quiet"), Cells("  ")]
            out += part if size(out) + size(part) <= width + 1 or key == "?" else []
        return out
    hint = f"{n_shown} of {n_rows} rows.{meant(at.wanted) if not n_shown else ''}  esc clear"
    field: Line = [Cells(" / ", "title"), Cells(at.wanted)]
    field += [Cells(" ", "cursor")] if at.is_filtering else []
    return [*field, Cells(right(hint, max(1, width - 1 - size(field))), "quiet")]
