"""The frame of the live view: a header of two lines, as much of the tree as fits, one agent opened
below, and the keys. Everything has a fixed width, so that nothing moves sideways; a row is cut,
never wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from retinue.cli.terminal.colors import Palette
from retinue.cli.terminal.tree_rows import RowChoice
from retinue.cli.terminal.wall_clock import clock
from retinue.formats.safe_text import one_line
from retinue.view import format as view_format
from retinue.view.ascii_marks import as_shown
from retinue.view.cells import Cells, Line, crop, cut, fits, size, wrap
from retinue.view.grid import TreeRow, tree_line, turns
from retinue.view.row_words import last_words
from retinue.view.rows import TreeView
from retinue.view.run_row import RunRow
from retinue.view.shared_trouble import shared_wait, trouble_lines
from retinue.view.state_marks import MARKS
from retinue.view.tree_header import counts_line, header

MOST_LINES = 16
TITLE = 60
AT_THE_END = 12
"""Rows that stay on the screen when a run is over."""
KINDS = {"task": "title", "result": "quiet", "bad": "fail", "denied": "held", "call": "work"}
KEYS = (
    ("a", "answer"),
    ("↑↓", "select"),
    ("↵", "open"),
    ("m", "message"),
    ("x", "cancel"),
    ("r", "retry"),
    ("q", "detach"),
    ("?", "keys"),
)
FAILED_KEYS = (("r", "retry"), ("R", "retry with a message"), ("↵", "open"), ("esc", "deselect"))
HELP = (
    "↑ ↓ k j  select an agent; esc deselects",
    "↵        open its live messages; again to close. PgUp PgDn scroll",
    "a tab    open the oldest request, then the next: a letter marks a choice, ↵ decides",
    "← → z    fold and unfold the agents below it",
    "m  M     send it a message: read at its next turn, or interrupting the current one",
    "x        cancel it and its sub-agents, after a question",
    "r  R     retry a failed sub-agent as a new run; with a message",
    "q  b     detach; the run continues. Ctrl-C cancels it; twice exits now",
)
KEPT = "partial results are kept"


@dataclass
class Focus:
    """Where the person is: what is selected, what is opened, what is being asked or written. A
    `panel` takes the place of the rows, a `prompt` that of the keys."""

    selected: str = ""
    opened: str = ""
    scroll: int = 0
    is_help: bool = False
    prompt: Sequence[Text] = ()
    panel: Sequence[Text] = ()
    said: str = ""
    """The last thing that a key has led to, in the place of the keys until the next one."""
    cancelled: set[str] = field(default_factory=set)


class Screen:
    """Makes frames of a view."""

    def __init__(self, view: TreeView, palette: Palette | None = None) -> None:
        self._view, self.palette = view, palette or Palette()
        self.choice = RowChoice(view)

    def frame(
        self,
        focus: Focus,
        now: int,
        width: int,
        height: int,
        transcript: Sequence[tuple[str, str]] = (),
    ) -> list[Text]:
        """At most half of the screen and sixteen lines; a panel or an opened agent has nearly all
        of it."""
        width, most = max(20, width), max(4, min(MOST_LINES, height // 2))
        self.choice.cancelled = focus.cancelled
        head = self._head(now, width)
        if focus.panel:
            lines = [*head[:1], *focus.panel]
            return _within(lines, width)[-max(1, height - 1) :]
        foot = list(focus.prompt) or [
            *self._cause(focus, now, width),
            self.palette.text(self._keys(focus, now, width)),
        ]
        lines = [*head, *self._tree(focus, now, width, most - len(head) - len(foot))]
        if focus.is_help:
            lines += [self.palette.colored(fits(f" {line}", width - 1), "quiet") for line in HELP]
        elif focus.opened in self._view.nodes:
            room = max(4, height - 2 - len(lines) - len(foot))
            lines += self._opened(focus, now, width, room, transcript)
        return _within([*lines, *foot], width)[-max(1, height - 1) :]

    def last(self, now: int, width: int, height: int) -> list[Text]:
        """The tree as it stays on the screen: whole, or who has failed and the counts."""
        width = max(20, width)
        order = self.choice.order()
        rows = self._tree(Focus(), now, width, AT_THE_END)
        if len(order) > AT_THE_END:
            failed = [id for id in order if self._view.nodes[id].mark == "failed"][:AT_THE_END]
            rows = [
                self.palette.text(tree_line(row, width, has_prices=self._has_prices(now)))
                for row in self.choice.rows(now, len(order)).rows
                if row.row.id in failed
            ]
        return _within([*self._head(now, width), *rows], width)

    def title(self) -> str:
        """For the window: `(1) Timeouts and retries · Retinue`, with how many need a person."""
        if not self._view.tops:
            return ""
        top = self._view.row(self._view.tops[0].spec.id, 0)
        n = self._view.counts["needs_input"]
        return f"{f'({n}) ' if n else ''}{fits(top.title, TITLE)} · Retinue"

    def _head(self, now: int, width: int) -> list[Text]:
        if not self._view.tops:
            return []
        top = self.choice.row(self._view.tops[0].spec.id, now)
        if not top.n_children:
            return [self.palette.text(status_line(top, width))]
        budget = self._view.tops[0].spec.request.budget
        more = f"  ·  limit {view_format.money(budget.usd)}" if budget.usd is not None else ""
        marks = dict(self._view.marks)
        marks[top.mark if top.mark in marks else "waiting"] -= 1  # the header itself is not a row
        note = KEPT if marks.get("cancelling") or top.mark == "cancelling" else ""
        lead = header(top, width, more, has_prices=self._has_prices(now))
        below = [counts_line({k: n for k, n in marks.items() if n > 0}, width, note)]
        if (trouble := shared_wait(self._view)) is not None:
            below = trouble_lines(*trouble, width, now, clock)
        return [self.palette.text(line) for line in (lead, *below)]

    def _has_prices(self, now: int) -> bool:
        """Whether the cost of anything is known."""
        nodes = self._view.nodes.values()
        return any(n.nanos or not n.is_unpriced for n in nodes if n.tokens) or not any(
            n.tokens for n in nodes
        )

    def _tree(self, focus: Focus, now: int, width: int, room: int) -> list[Text]:
        visible = self.choice.rows(now, room, focus.selected)
        has_prices = self._has_prices(now)
        rows = visible.rows
        if shared_wait(self._view) is not None:
            rows = tuple(self._before_trouble(row) for row in rows)
        lines = [self.palette.text(tree_line(row, width, has_prices=has_prices)) for row in rows]
        if visible.rest:
            lines.append(self.palette.colored(fits(f" {visible.rest}", width - 1), "quiet"))
        return lines

    def _before_trouble(self, at: TreeRow) -> TreeRow:
        """A row with its last words: what blocks all runs is said once, above."""
        row = at.row
        if row.wait is None:
            return at
        text = one_line(last_words(self._view.nodes[row.id], is_held=True))
        return at._replace(row=replace(row, now=text))

    def _opened(
        self, focus: Focus, now: int, width: int, room: int, transcript: Sequence[tuple[str, str]]
    ) -> list[Text]:
        row = self.choice.row(focus.opened, now)
        turn = f" · turn {turns(row)}" if row.turn else ""
        title = f"── {row.label} {row.short} · {row.word}{turn} · {row.model} "
        rule = set_cell_size(fits(title, width - 2) + "─" * width, width - 1)
        body: list[Text] = []
        for kind, text in transcript:
            for piece in wrap(text, width - 3):
                body.append(self.palette.colored(f"  {piece}", KINDS.get(kind, "")))
        room -= 1
        focus.scroll = max(0, min(focus.scroll, len(body) - room))
        end = len(body) - focus.scroll
        visible = body[max(0, end - room) : end]
        return [
            self.palette.colored(rule, "quiet"),
            *(visible or [self.palette.colored("  No messages yet.", "quiet")]),
        ]

    def _keys(self, focus: Focus, now: int, width: int) -> Line:
        if focus.said:
            return [Cells(fits(f" {focus.said}", width - 1))]
        n = self._view.counts["needs_input"]
        row = self._row(focus.selected, now)
        is_failed = row is not None and row.mark == "failed"
        out: Line = [Cells(" ")]
        if row is not None and width < 60:  # the words that have no column there
            return [Cells(fits(f" {row.label}: {row.now}", width - 1))]
        for key, what in FAILED_KEYS if is_failed else KEYS:
            if (key == "a" and not n) or (key == "r" and not is_failed and not self._n_failed()):
                continue
            more = f" {n}" if key == "a" else ""
            part = [Cells(as_shown(key), "title"), Cells(f" {what}{more}", "quiet"), Cells("  ")]
            if size(out) + size(part) <= width + 1 or key == "?":
                out += part
        return out

    def _cause(self, focus: Focus, now: int, width: int) -> list[Text]:
        """Why the selected agent failed, in full as far as a line has room."""
        row = self._row(focus.selected, now)
        if row is None or row.mark != "failed" or width < 60:
            return []
        return [self.palette.colored(fits(f" {row.label}: {row.error or row.now}", width - 1))]

    def _n_failed(self) -> int:
        return self._view.marks["failed"]

    def _row(self, id: str, now: int) -> RunRow | None:
        return self.choice.row(id, now) if id in self._view.nodes else None


def status_line(row: RunRow, width: int) -> Line:
    """One agent alone: ` ◉ thinking   writes: The cause is ...      24s   $0.03`."""
    mark = MARKS[row.mark]
    alone = tree_line(TreeRow(row), width)
    if width < 60:
        return alone
    numbers = alone[-1:]  # the cost; before it the time, where there is room
    if width >= 80:
        numbers = [alone[-3 if width >= 100 else -2], *numbers]
    lead = [Cells(" "), Cells(mark.glyph, mark.role, is_glyph=True), Cells(" ")]
    lead += [Cells(mark.word, mark.role), Cells(" " * max(0, 10 - cell_len(mark.word)) + " ")]
    room = max(0, width - 1 - size(lead) - size(numbers))
    return crop([*lead, Cells(cut(row.now, room)), *numbers], width)


def _within(lines: Sequence[Text], width: int) -> list[Text]:
    out = list(lines)
    for line in out:
        line.truncate(width - 1, overflow="crop")
        line.rstrip()
    return out
