"""Patches as models write them: unified diffs and the `*** Begin Patch` envelope, read into the
same changes and applied to lines. Line numbers and counts are hints, because models miscount; the
lines themselves must be there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

MAX_CHANGES = 100
MAX_PLACES = 1000
MAX_LOOK = 20_000
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
NO_EOL = "\\"


class BadPatch(ValueError):
    """What is wrong with a patch, for the model."""


@dataclass(slots=True)
class Hunk:
    """Lines that are there, and what they become. `at` is where they are said to be (from 0), `to`
    where they will be; `anchors` are lines that stand somewhere above; `*_eol` says whether the
    last line of a side ends with a line feed (None: not told)."""

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


@dataclass(slots=True)
class Change:
    """What a patch does to one file."""

    kind: Literal["add", "update", "delete"]
    path: str
    to: str = ""
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def content(self) -> str:
        """Of a file that is added."""
        lines = [line for hunk in self.hunks for line in hunk.new]
        eol = "" if self.hunks and self.hunks[-1].new_eol is False else "\n"
        return "\n".join(lines) + (eol if lines else "")


def parse(text: str) -> list[Change]:
    lines = text.replace("\r\n", "\n").split("\n")
    start = next((i for i, line in enumerate(lines) if line.strip() == "*** Begin Patch"), None)
    changes = _envelope(lines[start + 1 :]) if start is not None else _unified(lines)
    if not changes:
        raise BadPatch(
            "no change was found in it; give a unified diff (---, +++, @@) or a *** Begin Patch "
            "envelope"
        )
    if len(changes) > MAX_CHANGES:
        raise BadPatch(f"it changes {len(changes)} files; at most {MAX_CHANGES} are taken at once")
    names = [c.path for c in changes] + [c.to for c in changes if c.to]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise BadPatch(f"{twice} stands in it twice; put all its hunks under one header")
    for change in changes:
        if not change.path:
            raise BadPatch("a header names no file")
        if change.kind == "update" and not change.hunks and not change.to:
            raise BadPatch(f"{change.path}: there is no hunk for it")
    return changes


def _envelope(lines: list[str]) -> list[Change]:
    changes: list[Change] = []
    hunk: Hunk | None = None
    for number, line in enumerate(lines, 2):
        if line.strip() == "*** End Patch":
            return changes
        header = re.fullmatch(r"\*\*\* (Add|Update|Delete) File: (.*)", line)
        if header:
            kinds: dict[str, Literal["add", "update", "delete"]] = {
                "Add": "add",
                "Update": "update",
                "Delete": "delete",
            }
            changes.append(Change(kinds[header[1]], header[2].strip()))
            hunk = None
            continue
        if not changes:
            if line.strip():
                raise BadPatch(
                    f"line {number}: a *** Add File, Update File or Delete File header is missing"
                )
            continue
        change = changes[-1]
        if line.startswith("*** Move to: ") and change.kind == "update":
            change.to = line[13:].strip()
        elif line.strip() == "*** End of File" and hunk is not None:
            hunk.at_end = True
            hunk = None
        elif change.kind == "update" and line.startswith("@@"):
            if hunk is None or hunk.old or hunk.new:
                hunk = Hunk()
                change.hunks.append(hunk)
            if line[2:].strip():
                hunk.anchors.append(line[2:].strip().removesuffix("@@").strip())
        elif change.kind == "add" and line.startswith("+"):
            if not change.hunks:
                change.hunks.append(Hunk())
            change.hunks[0].new.append(line[1:])
        elif change.kind == "update" and (line == "" or line[0] in " +-"):
            if hunk is None:
                hunk = Hunk()
                change.hunks.append(hunk)
            _take(hunk, line)
        elif line.strip():
            raise BadPatch(
                f"line {number}: it does not start with +, -, a space, @@ or ***: {line[:80]}"
            )
    raise BadPatch("the line *** End Patch is missing; the patch may have been cut")


def _take(hunk: Hunk, line: str) -> None:
    if line[:1] != "+":
        hunk.old.append(line[1:])
    if line[:1] != "-":
        hunk.new.append(line[1:])


def _unified(lines: list[str]) -> list[Change]:
    changes: list[Change] = []
    moved: dict[str, str] = {}
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.startswith(("GIT binary patch", "Binary files ")):
            raise BadPatch(f"line {i + 1}: binary patches are not taken")
        if line.startswith("diff --git "):
            moved = {}
        elif line.startswith(("rename from ", "rename to ")):
            _, side, name = line.split(" ", 2)
            moved[side] = _unquoted(name)
            if len(moved) == 2:
                changes.append(Change("update", moved["from"], moved["to"]))
        elif line.startswith("--- ") and i + 1 < len(lines) and lines[i + 1].startswith("+++ "):
            _file(changes, _name(line[4:], "a/"), _name(lines[i + 1][4:], "b/"), moved)
            i += 1
        elif line.startswith("@@"):
            if not changes:
                raise BadPatch(
                    f"line {i + 1}: a hunk comes before the --- and +++ lines that name its file"
                )
            i = _hunk(changes[-1], lines, i)
            continue
        elif line.startswith(("deleted file mode", "new file mode")) and (
            plain := _empty_file(lines, i)
        ):
            changes.append(Change("delete" if line.startswith("d") else "add", plain))
        i += 1
    return changes


def _empty_file(lines: list[str], i: int) -> str:
    """The name of a file that comes or goes without a hunk, from the `diff --git a/x b/x` line
    above; else ""."""
    if any(later.startswith("--- ") for later in lines[i + 1 : i + 4]):
        return ""
    for line in reversed(lines[max(0, i - 3) : i]):
        found = re.fullmatch(r'diff --git "?a/(.*?)"? "?b/\1"?', line)
        if found:
            return found[1]
    return ""


def _file(changes: list[Change], old: str, new: str, moved: dict[str, str]) -> None:
    if moved and changes and changes[-1].to == moved.get("to"):
        return
    if old == "" and new == "":
        raise BadPatch("both sides of a header are /dev/null")
    if old == "":
        changes.append(Change("add", new))
    elif new == "":
        changes.append(Change("delete", old))
    else:
        changes.append(Change("update", old, "" if old == new else new))


def _name(text: str, side: str) -> str:
    """A file's name without its time and side; "" for /dev/null."""
    name = _unquoted(text.split("\t", 1)[0].strip())
    return "" if name == "/dev/null" else name.removeprefix(side)


def _unquoted(name: str) -> str:
    if not (len(name) > 1 and name[0] == name[-1] == '"'):
        return name
    raw = re.sub(
        rb'\\([0-7]{3}|["\\abtnvfr])',
        lambda m: (
            bytes([int(m[1], 8) & 255])
            if len(m[1]) == 3
            else {b"t": b"\t", b"n": b"\n"}.get(m[1], m[1])
        ),
        name[1:-1].encode("utf-8", "replace"),
    )
    return raw.decode("utf-8", "replace")


def _hunk(change: Change, lines: list[str], i: int) -> int:
    """Read one hunk; where it ends is told by its counts if they fit, else by its lines. Returns
    the line behind it."""
    header = HUNK.match(lines[i])
    hunk = Hunk(at=int(header[1]) - 1, to=int(header[3]) - 1) if header else Hunk()
    n_old, n_new = (int(header[2] or 1), int(header[4] or 1)) if header else (-1, -1)
    i += 1
    while i < len(lines):
        line = lines[i]
        if line.startswith(NO_EOL):
            before = lines[i - 1][:1]
            hunk.old_eol = False if before != "+" else hunk.old_eol
            hunk.new_eol = False if before != "-" else hunk.new_eol
            i += 1
            continue
        is_full = len(hunk.old) >= n_old and len(hunk.new) >= n_new
        if (is_full or not header) and _ends(lines, i):
            break
        if line.startswith(("@@ ", "diff --git ")) or (line and line[0] not in " +-"):
            break
        if line == "" and (is_full or all(rest == "" for rest in lines[i:])):
            break
        if (
            line.startswith("--- ")
            and _ends(lines, i)
            and i + 2 < len(lines)
            and lines[i + 2].startswith("@@")
        ):
            break
        _take(hunk, line)
        i += 1
    if not hunk.old and not hunk.new:
        raise BadPatch(f"line {i}: the hunk is empty")
    if hunk.old_eol is False or hunk.new_eol is False:
        hunk.old_eol = hunk.old_eol is None
        hunk.new_eol = hunk.new_eol is None
    change.hunks.append(hunk)
    return i


def _ends(lines: list[str], i: int) -> bool:
    """Whether the headers of the next file, or the end of a mail, start here."""
    pair = lines[i].startswith("--- ") and i + 1 < len(lines) and lines[i + 1].startswith("+++ ")
    return pair or lines[i] == "-- "


def apply(text: str, hunks: list[Hunk], clean: Callable[[str], str] = str) -> str:
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
    """Where the old side of a hunk stands: the nearest to where it is said to be; if nothing is
    said, the only one."""
    for anchor in hunk.anchors:
        found = next((i for i in range(start, len(bare)) if bare[i].strip() == anchor), None)
        if found is None:
            raise BadPatch(f"hunk {number}: the line {anchor[:120]!r} behind @@ was not found")
        start = found + 1
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
        shown = ", ".join(str(p + 1) for p in places[:10])
        raise BadPatch(
            f"hunk {number}: its lines stand {len(places)} times, at lines {shown}; give more "
            "context"
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
        return f"its first line was not found: {old[0][:120]!r}; read the file again"
    at = where + best
    there = f"there is {clean(bare[at])[:120]!r}" if at < len(bare) else "the file ends"
    return f"at line {at + 1} {there} where the patch has {old[best][:120]!r}; read the file again"
