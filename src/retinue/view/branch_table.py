"""The branches of a run, for people: whose, how much is on each, and whether it merges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from retinue.formats.safe_text import one_line
from retinue.view import format as view_format

STATES = {"open": "still at work", "kept": "not merged", "gone": "merged, or nothing to keep"}
MOST_PLACES = 3
Branch = Mapping[str, Any]


def branch_lines(branches: Sequence[Branch], width: int) -> list[str]:
    """A line for each branch, and below it what is in conflict with which other one. Where a name
    does not fit into so many columns, the branch has a line of its own."""
    rows = [(name_of(one), _branch(one), *_amounts(one)) for one in branches]
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ends = [_end(one) for one in branches]
    is_wide = sum(sizes) + 8 + max(map(len, ends)) < width
    lines = []
    for one, row, end in zip(branches, rows, ends, strict=True):
        middle = f"  {row[1]:<{sizes[1]}}" if is_wide else ""
        numbers = f"{row[2]:>{sizes[2]}}  {row[3]:>{sizes[3]}}"
        lines.append(f"{row[0]:<{sizes[0]}}{middle}  {numbers}  {end}")
        below = [] if is_wide or not row[1] else [f"on {row[1]}"]
        indent = sizes[0] + 2 if sizes[0] < width // 3 else 2
        lines += [f"{'':{indent}}{text}" for text in [*below, *_conflicts(one, branches)]]
    return [line.rstrip() for line in lines]


def _branch(branch: Branch) -> str:
    """Nothing where it has gone."""
    return "" if branch["state"] == "gone" else one_line(branch["branch"], 80)


def name_of(branch: Branch) -> str:
    """What a run is called."""
    return one_line(branch["label"], 40) or view_format.short_id(branch["run"])


def is_in_conflict(branch: Branch) -> bool:
    return (branch.get("merge") or {}).get("state") == "conflict"


def conflict_count(branch: Branch) -> str:
    n = len(branch["merge"]["places"])
    return f"{n} conflict{'' if n == 1 else 's'}"


def amount(branches: Sequence[Branch]) -> str:
    """`6 files, +210 -41`, of several together."""
    works = [_work(one) or {} for one in branches]
    n_files, added, removed = (
        sum(work.get(name, 0) for work in works) for name in ("files", "added", "removed")
    )
    return f"{_files(n_files)}, +{added} -{removed}"


def _files(n: int) -> str:
    return f"{n} file{'' if n == 1 else 's'}"


def _work(branch: Branch) -> Mapping[str, Any] | None:
    """How much is on a branch. Of a run that was stopped only the branch itself tells."""
    return branch.get("work") or (branch.get("merge") if branch["state"] == "kept" else None)


def _amounts(branch: Branch) -> tuple[str, str]:
    work = _work(branch)
    if work is None:
        return "-", ""
    n_files, added, removed = (work.get(name, 0) for name in ("files", "added", "removed"))
    return _files(n_files), f"+{added} -{removed}"


def _end(branch: Branch) -> str:
    merge = branch.get("merge")
    if branch["state"] != "kept" or merge is None:
        return STATES[branch["state"]]
    if merge["state"] == "conflict":
        return conflict_count(branch)
    if merge["state"] == "kept":
        return f"cannot be merged: {one_line(merge.get('why', ''), 100)}"
    return "no changes" if merge["state"] == "empty" else "merges cleanly"


def _conflicts(branch: Branch, branches: Sequence[Branch]) -> list[str]:
    """Where a branch does not fit, and who has changed these files too."""
    if not is_in_conflict(branch):
        return []
    places = branch["merge"]["places"]
    lines = [
        f"{one_line(place, 100)} was also changed {_by(place, branch, branches)}"
        for place in places[:MOST_PLACES]
    ]
    n_more = len(places) - MOST_PLACES
    return [*lines, f"and {n_more} more"] if n_more > 0 else lines


def _by(place: str, branch: Branch, branches: Sequence[Branch]) -> str:
    """The branches before it that merge and have the file; or the files themselves."""
    path = next((p for p in branch["merge"]["conflicts"] if place in (p, _of(p, place))), place)
    others = [
        name_of(one)
        for one in branches[: list(branches).index(branch)]
        if (one.get("merge") or {}).get("state") == "merged" and path in one["merge"]["paths"]
    ]
    return f"by {' and '.join(others)}" if others else "in your files"


def _of(path: str, place: str) -> str:
    """The place itself if it is one of this path."""
    return place if place.startswith(f"{path}:") else ""
