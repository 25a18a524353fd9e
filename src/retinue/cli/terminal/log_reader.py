"""The messages of one run as lines, read from the store: all of them, or those since the
last read."""

from __future__ import annotations

from retinue.cli.context import now_ms
from retinue.cli.terminal.wall_clock import clock
from retinue.host.listing import ListedRun
from retinue.host.message_cursor import inherited
from retinue.host.record import RecordReader
from retinue.view import totals
from retinue.view.cells import Line
from retinue.view.log_lines import LogLines, index_of_last
from retinue.view.states import label
from retinue.view.stored_tree import stored_rows


class LogReader:
    """One run. At the first look, `last` and `since` omit what is older."""

    def __init__(
        self,
        record: RecordReader,
        line: ListedRun,
        width: int,
        *,
        has_tools: bool = False,
        is_wrapped: bool = False,
    ) -> None:
        row = record.row(line.id)
        assert row is not None
        self._record, self._line = record, line
        self._lines = LogLines(
            label(row.spec),
            width,
            has_tools=has_tools,
            names={one.spec.id: label(one.spec) for one in record.tree(line.root).rows},
            models={model.name: model for model in record.load().models},
            began=row.spec.created_at,
            clock=clock,
            is_wrapped=is_wrapped,
        )
        self._n_read, self._after, self._n_own = 0, 0, inherited(row)
        self.is_over = False

    def more(self, last: int = 0, since: int = 0) -> list[Line]:
        """What was said since the last look. `is_over` tells whether more can come."""
        record, id = self._record, self._line.id
        row = record.row(id)
        assert row is not None
        self.is_over = totals.has_ended(row)
        while page := record.entries(self._after, id, 1_000):
            self._after = page[-1][0]
            self._lines.add((entry for _, entry in page), row.spec.model)
        at = self._n_read
        messages = record.conversation(row, at)
        first = index_of_last(messages, last) if last else 0
        if since:
            first = max(first, record.n_before(row, since))
        out: list[Line] = []
        for n, message in enumerate(messages):
            lines = list(self._lines.lines(at + n + 1, message, is_inherited=at + n < self._n_own))
            out += lines if n >= first else []
        self._n_read += len(messages)
        return out

    def now(self) -> list[Line]:
        """What an open run does now, after what was said."""
        tree = self._record.tree(self._line.id)
        rows = stored_rows(self._record, tree, now_ms(), is_paused=self._line.is_paused)
        return [*self._lines.unanswered(), self._lines.now(rows[0])]
