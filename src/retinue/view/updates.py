"""What a host tells, put into a view and into transcripts."""

from __future__ import annotations

from retinue.host.tree_items import CallsHeld, RunAdded, RunChanged, Stepped, TextArrived, TreeItem
from retinue.tree_record import TreeRecord
from retinue.view.rows import TreeView
from retinue.view.transcript import Transcripts


def feed(view: TreeView, item: TreeItem, now: int, transcripts: Transcripts | None = None) -> None:
    """One item. Texts are kept only where a user may read them."""
    if isinstance(item, RunAdded):
        view.take(item.spec)
    elif isinstance(item, Stepped):
        view.take(item.entry)
    elif isinstance(item, RunChanged):
        view.take(item.row.run)
    elif isinstance(item, TextArrived):
        view.add_text(item.run, item.attempt, item.text, now)
        if transcripts is not None:
            transcripts.preview(item.run, item.attempt, item.text)
    elif isinstance(item, CallsHeld):
        view.hold(item.calls)
    elif transcripts is not None:
        transcripts.add(item.run, item.message)


def conclude(view: TreeView, final: TreeRecord) -> None:
    """The state of everything at the end."""
    for row in final.rows:
        view.take(row.spec)
        view.take(row.run)
