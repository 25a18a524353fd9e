"""What became of requests: the diff again when an edit that was allowed is done, and who decided
one elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.core.events import Answered, Decided, TextReturned
from retinue.formats.safe_text import one_line
from retinue.host.tree_items import Stepped, TreeItem
from retinue.view.cells import Cells, Line, plain
from retinue.view.request_panel import RequestPanel, request_panel

MOST = 12
"""Lines of a diff that are shown again; the rest is counted."""


class DoneChanges:
    """Remembers what was allowed here until it is done, and how other requests were decided."""

    def __init__(self) -> None:
        self._expected: dict[tuple[str, str], tuple[str, RequestPanel]] = {}
        self._decided: dict[tuple[str, int], str] = {}

    def expect(self, q: Mapping[str, Any]) -> None:
        panel = request_panel(q)
        if panel.is_diff:
            self._expected[q["run"], q["call"]["id"]] = (one_line(q["label"], 40), panel)

    def take(self, item: TreeItem) -> list[Line] | None:
        """What happened; the lines to show when it is the end of a change that was allowed here."""
        event = item.entry.event if isinstance(item, Stepped) else None
        if isinstance(item, Stepped) and isinstance(event, Decided):
            by = f" by {one_line(event.by, 40)}" if event.by else ""
            verb = "allowed" if event.allow else "denied"
            self._decided[item.entry.run, event.index] = f"✓ done: {verb}{by}"
        elif isinstance(item, Stepped) and isinstance(event, Answered):
            self._decided[item.entry.run, event.index] = "✓ done: answered"
        elif isinstance(item, Stepped) and isinstance(event, TextReturned):
            expectation = self._expected.pop((item.entry.run, event.call_id), None)
            return None if expectation is None else _result_lines(*expectation, event)
        return None

    def outcome(self, q: Mapping[str, Any], label: str) -> str:
        """How a request was decided that is no longer open."""
        decision = self._decided.get((q["run"], q["index"]))
        return f"{decision} elsewhere" if decision else f"{label} no longer needs this."


def _result_lines(who: str, panel: RequestPanel, event: TextReturned) -> list[Line]:
    if event.error:
        return [
            [
                Cells("✗ ", "fail", is_glyph=True),
                Cells(f"failed: {who}: {one_line(event.text, 200)}"),
            ]
        ]
    words = f" done: {who}: {panel.wants}  {panel.signs}"
    head: Line = [Cells("✓", "done", is_glyph=True), Cells(words)]
    body = [line for line in panel.body if plain(line)]
    more: list[Line] = (
        [[Cells(f"   {len(body) - MOST} more lines", "quiet")]] if len(body) > MOST else []
    )
    return [head, *([Cells("   "), *line] for line in body[:MOST]), *more]
