"""A unified diff as lines with numbers: what comes is bold with a green sign, what goes is red, and
everything that would not be seen is spelled out."""

from __future__ import annotations

import re

from retinue.formats.safe_text import reveal
from retinue.view.cells import Cells, Line

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")


def diff_lines(diff: str) -> list[Line]:
    """`113  - old` and `113  + new`; a heading says where each place is."""
    out: list[Line] = []
    old = new = 0
    for line in diff.split("\n") if diff else ():
        match = _HUNK.fullmatch(line)
        if match is not None:
            old, new = int(match[1]), int(match[2])
            heading = _shown(match[3])
            if heading or out:
                out.append([Cells(heading or "⋯", "quiet")])
            continue
        sign, text = line[:1], _shown(line[1:])
        if sign == "-":
            out.append([Cells(f"{old:>4}  ", "quiet"), Cells(f"- {text}", "fail")])
            old += 1
        elif sign == "+":
            gutter = Cells(f"{new:>4}  ", "quiet")
            out.append([gutter, Cells("+ ", "done", is_glyph=True), Cells(text, "title")])
            new += 1
        else:
            shown_text = text if sign == " " else _shown(line)
            out.append(
                [Cells(f"{new:>4}  " if sign == " " else "", "quiet"), Cells(f"  {shown_text}")]
            )
            old, new = old + 1, new + 1
    return out


def is_change(line: Line) -> bool:
    """Whether a line of `diff_lines` comes or goes."""
    return any(p.role in ("done", "fail") and p.text.startswith(("+ ", "- ")) for p in line)


def _shown(text: str) -> str:
    """With its tabs as spaces, and spaces at its end as dots."""
    text = reveal(text, keep="\n\t").expandtabs(4)
    bare = text.rstrip(" ")
    return bare + "·" * (len(text) - len(bare))
