"""A unified diff as values: for each file the lines that were added and taken away, with their
numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_QUOTED = re.compile(r'^"(.*)"$')


@dataclass
class FileDiff:
    """`removed` lines have the number of the line that stands before them now, 0 in a file that is
    gone."""

    path: str
    added: list[tuple[int, str]] = field(default_factory=list)
    removed: list[tuple[int, str]] = field(default_factory=list)
    is_new: bool = False
    is_gone: bool = False
    is_binary: bool = False


def read_diff(text: str) -> list[FileDiff]:
    out: list[FileDiff] = []
    now: FileDiff | None = None
    new_line, inside = 0, False
    for line in text.split("\n"):
        if line.startswith("diff --git "):
            now, inside = FileDiff(_path(line.rsplit(" b/", 1)[-1])), False
            out.append(now)
        elif now is None:
            continue
        elif hunk := _HUNK.match(line):
            new_line, inside = int(hunk[2]), True
        elif not inside:
            _header(now, line)
        elif line.startswith("+"):
            now.added.append((new_line, line[1:]))
            new_line += 1
        elif line.startswith("-"):
            now.removed.append((0 if now.is_gone else max(1, new_line - 1), line[1:]))
        elif line.startswith(" "):
            new_line += 1
    return out


def _header(now: FileDiff, line: str) -> None:
    now.is_new = now.is_new or line.startswith("new file")
    now.is_gone = now.is_gone or line.startswith("deleted file")
    now.is_binary = now.is_binary or line.startswith(("Binary files", "GIT binary"))
    if line.startswith("+++ b/"):
        now.path = _path(line[6:])


def _path(text: str) -> str:
    found = _QUOTED.match(text.strip())
    return found[1] if found else text.rstrip("\t")
