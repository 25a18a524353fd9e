"""The background work of a chat: rows next to its prompt, a line for each end, and a screen with
the keys of `top`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

from retinue.cli.context import CommandContext, now_ms
from retinue.cli.terminal.colors import Palette, ansi
from retinue.cli.terminal.terminal_style import detect_style, size
from retinue.errors import RetinueError
from retinue.formats.safe_text import one_line
from retinue.host.keys import carried
from retinue.host.listing import RunListing
from retinue.host.record import RecordReader
from retinue.tree_record import RunRecord
from retinue.view import format as view_format
from retinue.view import totals
from retinue.view.cells import Cells, Line, fits, right
from retinue.view.cells import size as text_width
from retinue.view.run_row import RunRow
from retinue.view.state_marks import mark
from retinue.view.states import ending, label
from retinue.view.stored_tree import stored_lines, stored_rows

MOST_ROWS = 6
KEYS = (
    ("esc", "agents"),
    ("alt-↵", "new line"),
    ("tab", "complete"),
    ("ctrl-c", "cancel"),
    ("ctrl-d", "quit"),
)
READ_LATER = "  The agent reads this at its next turn."


class ChatRows:
    """`roots` are the first runs of the conversation's messages."""

    def __init__(self, context: CommandContext, roots: Callable[[], Collection[str]]) -> None:
        self._context, self._roots = context, roots
        self._rows: list[RunRow] = []

    def refresh(self) -> None:
        """Read what is at work; a store that cannot be read now is read the next time."""
        roots = self._roots()
        try:
            with RunListing(self._context.paths) as listing:
                lines = [line for line in listing.open_runs() if line.root in roots]
            tops = dict.fromkeys(line.root for line in lines)
            self._rows = self._read(list(tops)) if tops else []
        except (RetinueError, OSError):
            return

    def _read(self, tops: list[str]) -> list[RunRow]:
        with RecordReader(self._context.paths) as record:
            trees = [stored_rows(record, record.tree(top), now_ms()) for top in tops]
        return [row for rows in trees for row in rows if not row.is_over]

    @property
    def n_open(self) -> int:
        return len(self._rows)

    def lines(self, cost: str, width: int) -> list[Line]:
        """The rows, and the keys with what the conversation has cost."""
        rows = self._rows[:MOST_ROWS]
        out = stored_lines(rows, width, is_named=True)
        if len(self._rows) > len(rows):
            out.append([Cells(f" +{len(self._rows) - len(rows)} more", "quiet")])
        keys: Line = [Cells(" ")]
        for key, what in KEYS:
            part = [Cells(key, "title"), Cells(f" {what}", "quiet"), Cells("  ")]
            keys += part if text_width(keys) + text_width(part) + len(cost) < width else []
        return [*out, [*keys, Cells(right(cost, max(1, width - 1 - text_width(keys))))]]

    def toolbar(self, cost: str) -> str:
        """The same with the sequences of its colours."""
        how = detect_style(self._context.environ, sys.stderr, self._context.color)
        palette = Palette(how.theme, how.color)
        columns, _ = size(sys.stderr)
        return "\n".join(ansi(palette.text(line)) for line in self.lines(cost, columns))

    def open(self) -> str:
        """The rows on a full screen until the user comes back; returns the text about it."""
        if not self._roots():
            return "No agents yet."
        from retinue.cli.tui.project_runs import ProjectRuns
        from retinue.cli.tui.top_app import TopApp

        runs = ProjectRuns(
            self._context.paths, carried(self._context.environ), tuple(self._roots())
        )
        how = detect_style(self._context.environ, sys.stdout, self._context.color)
        home = self._context.environ.get("HOME", "")
        try:
            TopApp(runs, palette=Palette(how.theme, how.color), home=home, is_chat=True).run()
        finally:
            runs.close()
        return ""


def ended_lines(row: RunRecord, *, is_own: bool) -> list[str]:
    """That something has ended in the background: how long it took, what it came to, what it cost,
    and how to see more."""
    end, state = totals.ending(row), totals.word(row)
    if end is None:
        return []
    name = fits(label(row.spec), 40)
    address = name if is_own and " " not in name else view_format.short_id(row.spec.id)
    sign = mark(state)
    span = view_format.span_text(totals.elapsed(row))
    text = one_line(ending(end, row.run.started_at), 160)
    parts = [f"{sign.glyph} {name} {sign.word} in {span}", text]
    if not totals.is_offline(row) and row.run.usage.nanos:
        parts.append(view_format.money(row.run.usage.usd, is_bound=not row.run.usage.cost_is_known))
    lines = [" · ".join([*parts, f"/show {address}"])]
    return [*lines, READ_LATER] if is_own and row.spec.parent else lines
