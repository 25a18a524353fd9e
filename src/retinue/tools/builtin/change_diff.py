"""The change of a file as a unified diff for the person who decides about it, limited in size."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple

from retinue.tools.builtin.text_file import displayable, split_lines

CONTEXT = 2
MOST_LINES = 2_000
MOST_CHARS = 100_000
MOST_LINE = 1_000
MOST_COMPARED = 3_000
"""Longer parts are not compared line by line: they go and come whole."""
_HEADING = re.compile(r"\s*[A-Za-z_$#@]")
_RANGES = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class ChangeDiff(NamedTuple):
    """`n_hidden` lines of the diff are not in `text`."""

    text: str
    added: int
    removed: int
    n_hidden: int


def change_diff(old: str, new: str) -> ChangeDiff:
    """What comes and what goes, with two lines around each place."""
    before, after = split_lines(old) if old else [], split_lines(new) if new else []
    n = min(len(before), len(after))
    start = next((i for i in range(n) if before[i] != after[i]), n)
    end = next((i for i in range(n - start) if before[-1 - i] != after[-1 - i]), n - start)
    first, keep = max(0, start - CONTEXT), min(end, CONTEXT)
    mine = before[first : len(before) - end + keep]
    theirs = after[first : len(after) - end + keep]
    if max(len(mine), len(theirs)) > MOST_COMPARED:
        lines = _whole(before, after, start, end)
    else:
        diff = difflib.unified_diff(mine, theirs, n=CONTEXT, lineterm="")
        lines = [_placed(line, first, before) for line in list(diff)[2:]]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    if not lines and old != new:
        lines = ["[only the end of the last line changes]"]
    shown_lines = _bounded(lines)
    return ChangeDiff(
        displayable("\n".join(shown_lines)), added, removed, len(lines) - len(shown_lines)
    )


def _whole(before: Sequence[str], after: Sequence[str], start: int, end: int) -> list[str]:
    old, come = before[start : len(before) - end], after[start : len(after) - end]
    head = f"@@ -{start + 1},{len(old)} +{start + 1},{len(come)} @@"
    return [head, *(f"-{line}" for line in old), *(f"+{line}" for line in come)]


def _placed(line: str, add: int, before: Sequence[str]) -> str:
    """A line of the diff; a header with the numbers of the whole file and the line above."""
    match = _RANGES.fullmatch(line)
    if match is None:
        return line.rstrip("\r")
    starts = [int(match[1]) + add, int(match[3]) + add]
    counts = [match[2] or "1", match[4] or "1"]
    heading = next((text for text in reversed(before[: starts[0] - 1]) if _is_heading(text)), "")
    ranges = f"-{starts[0]},{counts[0]} +{starts[1]},{counts[1]}"
    return f"@@ {ranges} @@ {heading.strip()[:80]}".rstrip()


def _is_heading(line: str) -> bool:
    """As git chooses it: a line that begins at the left and is not a comment."""
    return bool(_HEADING.match(line)) and not line[:1].isspace() and line[:1] not in "#@"


def _bounded(lines: Sequence[str]) -> list[str]:
    shown_lines, size = list[str](), 0
    for line in lines[:MOST_LINES]:
        size += min(len(line), MOST_LINE) + 1
        if size > MOST_CHARS:
            break
        shown_lines.append(line if len(line) <= MOST_LINE else f"{line[:MOST_LINE]}…")
    return shown_lines
