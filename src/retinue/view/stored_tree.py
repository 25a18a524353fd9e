"""The rows of a tree as it is on record, for a single look without watching."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from retinue.core.state import Ended
from retinue.host.provider_waits import ProviderWait
from retinue.host.record import RecordReader
from retinue.tree_record import TreeRecord
from retinue.view.call_summary import describe
from retinue.view.cells import Line
from retinue.view.grid import TreeRow, guides, tree_line
from retinue.view.rows import TreeView
from retinue.view.run_row import RunRow, as_paused
from retinue.view.state_marks import MARKS, counted, loudest

PAGE = 1_000


def recall(view: TreeView, record: RecordReader, final: TreeRecord) -> None:
    """A tree as it is recorded. Of what is open also the steps are read: they tell what it does;
    and of those whose sub-agents wrote in parallel: they tell what did not fit."""
    with_writers = {row.spec.parent for row in final.rows if row.spec.request.copy_of}
    for row in final.rows:
        view.take(row.spec)
    for row in final.rows:
        if not isinstance(row.run.state, Ended) or row.spec.id in with_writers:
            after = 0
            while page := record.entries(after, row.spec.id, PAGE):
                after = page[-1][0]
                for _, entry in page:
                    view.take(entry)
    for row in final.rows:
        view.take(row.run)


def stored_rows(
    record: RecordReader,
    final: TreeRecord,
    now: int,
    *,
    is_paused: bool = False,
    waits: Mapping[str, ProviderWait] | None = None,
    lacks: Mapping[str, str] | None = None,
) -> list[RunRow]:
    """From top to bottom. `waits` are the calls that have not left, and `lacks` what keeps runs
    from being continued, by their runs."""
    view = TreeView(describe)
    recall(view, record, final)
    rows = [_with_wait(row, waits or {}, now) for row in view.rows(now)]
    return [
        as_paused(row, (lacks or {}).get(row.id, ""))
        if not row.is_over and (is_paused or row.id in (lacks or {}))
        else row
        for row in rows
    ]


def _with_wait(row: RunRow, waits: Mapping[str, ProviderWait], now: int) -> RunRow:
    wait = waits.get(row.id)
    if wait is None or row.is_over:
        return row
    return replace(row, mark=wait.state, state="waiting", now=wait.cell(now), wait=wait)


def with_loudest(rows: list[RunRow]) -> list[RunRow]:
    """The same, of which the first tells the loudest state of all, and how many are through."""
    top, below = rows[0], rows[1:]
    name = loudest(top.mark, (row.mark for row in below))
    if name == top.mark:
        return rows
    ends = [row.mark for row in below if row.parent == top.id and row.is_over]
    counts = {mark: ends.count(mark) for mark in ends}
    parts = [f"{n} {MARKS[mark].word}" for mark, n in reversed(counted(counts, is_merged=True))]
    n = top.n_children
    many = f"{n} sub-agent{'' if n == 1 else 's'}"
    text = f"for {many}"
    if parts:
        first, *rest = parts
        number, _, word = first.partition(" ")
        text = ", ".join([f"{number} of {many} {word}", *rest])
    needs = next((row.now for row in below if row.mark == name == "needs_input"), "")
    first_row = replace(top, mark=name, now=needs or text, needs_you=name == "needs_input")
    return [first_row, *below]


def stored_lines(rows: Iterable[RunRow], width: int, *, is_named: bool = False) -> list[Line]:
    """Rows as they are in the grid. `is_named`: the first is called by its name too, not by its id
    and its task."""
    rows_shown = [replace(row, depth=row.depth + 1) for row in rows] if is_named else list(rows)
    base = rows_shown[0].depth if rows_shown else 0
    has_prices = any(row.tree_usd is not None for row in rows_shown if row.tree_tokens) or not any(
        row.tree_tokens for row in rows_shown
    )
    return [
        tree_line(TreeRow(row, bars), width, has_prices=has_prices)
        for row, bars in zip(rows_shown, guides(rows_shown, base), strict=True)
    ]
