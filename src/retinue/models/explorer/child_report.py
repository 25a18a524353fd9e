"""The report of a sub-agent: rows of JSON, one per line, the most important first, so that a
shortened report loses the least; the last row says whether anything is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

OPEN, CLOSE = "```findings", "```"
ROOM = 30_000
Row = list[Any]


@dataclass
class Findings:
    """`whole`: nothing was omitted on the way, and nothing that was looked for stayed unseen.
    `calls` is how many tool calls it took; `why` says what went wrong when there are no rows,
    `said` in a few words what was found."""

    name: str
    rows: list[Row] = field(default_factory=list)
    whole: bool = True
    calls: int = 0
    why: str = ""
    by_child: bool = False
    said: str = ""

    def get(self, tag: str, *types: type) -> Iterator[tuple[Any, ...]]:
        """The rows of one kind, without those of another shape: a sub-agent's text is data."""
        for row in self.rows:
            if len(row) == len(types) + 1 and row[0] == tag and all(map(_fits, row[1:], types)):
                yield tuple(row[1:])

    @property
    def notes(self) -> list[str]:
        return [n for (n,) in self.get("note", str)]


def _fits(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encode(
    name: str, heading: str, rows: Sequence[Row], *, calls: int, whole: bool, room: int = ROOM
) -> str:
    lines, used = [], len(heading) + len(name) + 80
    for row in rows:
        line = dumps(row)
        used += len(line.encode("utf-8", "replace")) + 1
        if used > room:
            whole = False
            break
        lines.append(line)
    last = dumps(["end", name, len(lines), calls, whole])
    return "\n".join([heading, "", OPEN, *lines, last, CLOSE])


def decode(name: str, text: str) -> Findings:
    """The rows in a text, whatever else is in it. Without the last row it is not whole."""
    _, mark, rest = text.partition(OPEN)
    if not mark:
        return Findings(name, whole=False, why="it submitted no findings")
    out = Findings(name, whole=False, by_child=True)
    for line in rest.splitlines():
        if line.strip() == CLOSE:
            break
        row = _row(line)
        if row is None:
            continue
        if row[0] == "end" and len(row) == 5:
            out.calls = row[3] if isinstance(row[3], int) else 0
            out.whole = row[4] is True and row[2] == len(out.rows)
            break
        out.rows.append(row)
    if not out.rows and not out.whole:
        out.why = "its findings could not be read"
    return out


def _row(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, list) and row and isinstance(row[0], str) else None
