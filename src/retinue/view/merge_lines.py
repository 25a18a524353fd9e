"""What became of the changes of writers that worked in parallel, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from retinue.core.events import Merged
from retinue.core.merges import BranchMerge
from retinue.formats.safe_text import one_line
from retinue.host.tree_items import Stepped, TreeItem


def conflicts_of(item: TreeItem) -> list[BranchMerge]:
    """The changes that did not fit, when an item tells of a merge."""
    if not isinstance(item, Stepped) or item.entry.stale:
        return []
    event = item.entry.event
    return [m for m in event.merges if m.state == "conflict"] if isinstance(event, Merged) else []


def conflict_text(merge: BranchMerge) -> str:
    """One line, when it happens."""
    name = one_line(merge.label, 40)
    return f"{name}: conflict in {files_text(merge.conflicts)}. Not merged: {merge.branch}"


def conflict_cell(merge: BranchMerge) -> str:
    """For the row of the writer."""
    return f"conflict in {files_text(merge.conflicts)}, not merged"


def files_text(paths: Sequence[str]) -> str:
    listing = ", ".join(one_line(path, 60) for path in paths[:3])
    return f"{listing} and {len(paths) - 3} more" if len(paths) > 3 else listing


def merge_end_lines(merges: Sequence[Mapping[str, Any]], id: str) -> list[str]:
    """At the end of a run: whose changes did not fit, where they are, and what went into the
    files."""
    bad = [one for one in merges if one["state"] == "conflict"]
    lines = [
        f"  merge   {one_line(one['label'], 40)}: conflict in {files_text(one['conflicts'])}; "
        f"its changes are on {one_line(one['branch'], 80)}"
        for one in bad
    ]
    good = [one for one in merges if one["state"] == "merged"]
    if good:
        files = len({path for one in good for path in one["paths"]})
        added, removed = sum(one["added"] for one in good), sum(one["removed"] for one in good)
        lines.append(f"  files   {files} changed, +{added} -{removed}, merged. See: git diff")
    if bad:
        lines.append(f"          See: retinue diff {id}. Try again: retinue merge {id}")
    return lines
