"""Parses patches as models write them: unified diffs and the `*** Begin Patch` format, into the
same changes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from retinue.tools.builtin.hunks import BadPatch, Hunk

MAX_CHANGES = 100
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
NO_EOL = "\\"


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
            "it contains no change. Give a unified diff (---, +++, @@) or a *** Begin "
            "Patch envelope"
        )
    if len(changes) > MAX_CHANGES:
        raise BadPatch(f"it changes {len(changes)} files; the limit is {MAX_CHANGES}")
    names = [c.path for c in changes] + [c.to for c in changes if c.to]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise BadPatch(f"{twice} occurs in it twice. Put all its hunks under one header")
    for change in changes:
        if not change.path:
            raise BadPatch("a header names no file")
        if change.kind == "update" and not change.hunks and not change.to:
            raise BadPatch(f"{change.path}: it has no hunk")
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
    raise BadPatch("the line *** End Patch is missing; the patch may be truncated")


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
            raise BadPatch(f"line {i + 1}: binary patches are not supported")
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
        match = re.fullmatch(r'diff --git "?a/(.*?)"? "?b/\1"?', line)
        if match:
            return match[1]
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
    """Read one hunk; its end is known by its counts if they fit, otherwise by its lines. Returns
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
