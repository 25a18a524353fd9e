"""Merges of parallel writers, in order: the request, its result, and the text about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from retinue.core.call_rules import Bounds, is_hidden
from retinue.core.values import Value, size_of_change
from retinue.formats.safe_text import one_line, several_lines

MOST_SHOWN = 20
"""Of the files that a note names."""
MOST_NAME = 40


class WriterCopy(Value):
    """The copy in which a run has worked: of the commit `base` ("" when that is not known, and is
    where its branch left the one of today), for the directory `place`. `bounds` are the rules of
    who reads about the merge, and `sent` the directory in which they mean this one ("": the same).
    `is_wanted`: it has done what it was asked for, so that its changes are to be merged; else they
    are kept on its branch."""

    run: str
    label: str
    base: str
    place: str
    is_wanted: bool = True
    sent: str = ""
    bounds: Bounds = ()

    def is_hidden(self, path: str) -> bool:
        """Whether what is in this file is kept from who reads about the merge."""
        top = f"{self.place.rstrip('/')}/"
        is_inside = path.startswith(top) and self.sent
        target = f"{self.sent}/{path[len(top) :]}" if is_inside else path
        return is_hidden(self.bounds, target)


class BranchMerge(Value):
    """What became of the changes of one run. `conflicts` are the files that two have changed in
    the same lines, `hunks` these lines, as git marks them, and `places` where they are. While it is
    neither `merged` nor `empty`, its changes are whole on `branch`; `why` says what kept them
    there. `ignored` was new in its copy and is neither merged nor on the branch, because git
    ignores it."""

    run: str
    label: str
    state: Literal["merged", "empty", "conflict", "kept"]
    branch: str = ""
    files: int = 0
    added: int = 0
    removed: int = 0
    paths: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    hunks: str = ""
    places: tuple[str, ...] = ()
    why: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        note = f" Not taken over, because git ignores it: {_listed(self.ignored)}."
        return self._fate if not self.ignored else f"{self._fate}{note}"

    @property
    def _fate(self) -> str:
        name = one_line(self.label, 200)
        size = size_of_change(self.files, self.added, self.removed)
        if self.state == "empty":
            return f"- {name}: no changes"
        if self.state == "merged":
            return f"- {name}: merged ({size}: {_listed(self.paths)})"
        where = f"Its changes ({size}) are on branch {self.branch}." if self.branch else ""
        if self.state == "conflict":
            heading = (
                f"- {name}: NOT merged, conflict in {_listed(self.conflicts)}. {where} Nothing of "
                "it was applied. Read the branch, and make its changes fit."
            )
            return "\n".join((heading, *_indented(self.hunks)))
        return f"- {name}: not merged: {one_line(self.why)}. {where}".rstrip()


def _indented(text: str) -> list[str]:
    """What others have written begins no line of ours."""
    return [f"    {line}".rstrip() for line in several_lines(text).rstrip().split("\n") if text]


def branch_name(label: str, run: str) -> str:
    """A branch that people recognise: what its run is called, and enough of its id to be the only
    one."""
    name = re.sub(r"[^a-z0-9]+", "-", label.lower())[:MOST_NAME].strip("-") or "run"
    return f"retinue/{name}-{run.replace('-', '')[-8:]}"


def merge_note(merges: Sequence[BranchMerge]) -> str:
    """What the run that started the writers reads."""
    if all(one.state == "empty" and not one.ignored for one in merges):
        return ""
    head = "The sub-agents worked in copies. Their changes go into your directory in order:"
    return "\n".join((head, *(one.words for one in merges)))


def _listed(paths: Sequence[str]) -> str:
    listing = ", ".join(one_line(path, 200) for path in paths[:MOST_SHOWN])
    more = len(paths) - MOST_SHOWN
    return f"{listing} and {more} more" if more > 0 else listing
