"""Applies hunks of a patch to lines. Line numbers and counts are hints, because models miscount;
the lines themselves must be there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MAX_PLACES = 1000
MAX_LOOK = 20_000


class BadPatch(ValueError):
    """What is wrong with a patch, for the model."""


@dataclass(slots=True)
class Hunk:
    """Lines that are there, and what they become. `at` is where they are said to be (from 0), `to`
    where they will be; `anchors` are lines somewhere above; `*_eol` says whether the last line of a
    side ends with a line feed (None: unknown)."""

    at: int | None = None
    anchors: list[str] = field(default_factory=list)
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    old_eol: bool | None = None
    new_eol: bool | None = None
    at_end: bool = False
    to: int | None = None

    def reversed(self) -> Hunk:
        return Hunk(
            self.to,
            self.anchors,
            self.new,
            self.old,
            self.new_eol,
            self.old_eol,
            self.at_end,
            self.at,
        )


def apply_hunks(text: str, hunks: list[Hunk], clean: Callable[[str], str] = str) -> str:
    """The text with all hunks in it, in their order. Its line ends stay; new lines get those of
    their neighbours. `clean` is for a line of it that is shown in a complaint."""
    lines = text.split("\n")
    has_eol = lines[-1] == ""
    if has_eol:
        lines.pop()
    bare = [line.removesuffix("\r") for line in lines]
    crlf = sum(line.endswith("\r") for line in lines) * 2 > len(lines)
    shift = cursor = 0
    out: list[str] = []
    for number, hunk in enumerate(hunks, 1):
        at = _place(bare, hunk, cursor, shift, number, clean)
        if hunk.at is not None and hunk.old:
            shift = at - hunk.at
        stop = at + len(hunk.old)
        out += lines[cursor:at]
        out += _replaced(lines[at:stop], hunk, crlf)
        cursor = stop
        if stop == len(lines) and hunk.new_eol is not None:
            has_eol = hunk.new_eol
    out += lines[cursor:]
    return "\n".join(out) + ("\n" if has_eol and out else "")


def _replaced(old: list[str], hunk: Hunk, crlf: bool) -> list[str]:
    """The new side; lines that stay keep their own ends."""
    ends = {line.removesuffix("\r"): line for line in old}
    end = "\r" if crlf else ""
    return [ends.get(line, line + end) for line in (n.removesuffix("\r") for n in hunk.new)]


def _place(
    bare: list[str], hunk: Hunk, start: int, shift: int, number: int, clean: Callable[[str], str]
) -> int:
    """The position of the old side of a hunk: the nearest to where it is said to be; if nothing is
    said, the only one."""
    for anchor in hunk.anchors:
        index = next((i for i in range(start, len(bare)) if bare[i].strip() == anchor), None)
        if index is None:
            raise BadPatch(f"hunk {number}: the line {anchor[:120]!r} after @@ was not found")
        start = index + 1
    old = [line.removesuffix("\r") for line in hunk.old]
    if not old:
        if hunk.anchors:
            return start
        return (
            len(bare)
            if hunk.at is None or not bare
            else min(max(hunk.at + 1 + shift, start), len(bare))
        )
    places = _places(bare, old, start)
    if hunk.at_end:
        places = [p for p in places if p + len(old) == len(bare)] or places
    if not places:
        raise BadPatch(f"hunk {number}: {_missing(bare, old, start, clean)}")
    if len(places) == 1 or hunk.anchors:
        return places[0]
    if hunk.at is None:
        places_text = ", ".join(str(p + 1) for p in places[:10])
        raise BadPatch(
            f"hunk {number}: its lines occur {len(places)} times, at lines {places_text}. Give "
            "more context"
        )
    return min(places, key=lambda p: abs(p - hunk.at - shift))  # type: ignore[operator]


def _places(bare: list[str], old: list[str], start: int) -> list[int]:
    """By one search in the whole text: comparing line by line takes minutes on a file of equal
    lines."""
    text, block = "\n".join(["", *bare[start:], ""]), "\n".join(["", *old, ""])
    places: list[int] = []
    line, last = start, 0
    at = text.find(block)
    while at >= 0 and len(places) < MAX_PLACES:
        line += text.count("\n", last, at)
        last = at
        places.append(line)
        at = text.find(block, at + 1)
    return places


def _missing(bare: list[str], old: list[str], start: int, clean: Callable[[str], str]) -> str:
    """The longest beginning of the lines that is there, and the line that then differs."""
    best, where = 0, -1
    for i in range(start, min(len(bare), MAX_LOOK)):
        n = 0
        while n < min(len(old), 50) and i + n < len(bare) and bare[i + n] == old[n]:
            n += 1
        if n > best:
            best, where = n, i
    if where < 0:
        return f"its first line was not found: {old[0][:120]!r}. Read the file again"
    at = where + best
    there = f"there is {clean(bare[at])[:120]!r}" if at < len(bare) else "the file ends"
    return f"at line {at + 1} {there} where the patch has {old[best][:120]!r}. Read the file again"
