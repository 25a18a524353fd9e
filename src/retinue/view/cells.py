"""Text in the cells of a terminal: cut to a width that is measured as it is shown, and made of
pieces, each with the role that its colour comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

_TROUBLE = re.compile(r"\S+ (?:\d{3}|refused): ")
_CHANGE = re.compile(r"(?P<verb>change|write|create|delete|read) (?P<path>\S+)(?P<rest>.*)")


class Cells(NamedTuple):
    """A text, and the role of its colour (`state_marks.style`). `is_glyph`: some roles colour only
    the glyph of a state."""

    text: str
    role: str = ""
    is_glyph: bool = False


Line = list[Cells]


def plain(line: Iterable[Cells]) -> str:
    return "".join(piece.text for piece in line).rstrip()


def size(line: Iterable[Cells]) -> int:
    return sum(cell_len(piece.text) for piece in line)


def crop(line: Iterable[Cells], width: int) -> Line:
    """Without what would reach the last of so many columns."""
    out, room = Line(), width - 1
    for piece in line:
        if (have := cell_len(piece.text)) > room:
            out.append(piece._replace(text=set_cell_size(piece.text, max(0, room))))
            break
        out.append(piece)
        room -= have
    return out


def cut(text: str, width: int) -> str:
    """Exactly so many cells; a cut is marked."""
    if width <= 0:
        return ""
    have = cell_len(text)
    if have <= width:
        return text + " " * (width - have)
    return set_cell_size(text, width - 1) + "…"


def fits(text: str, width: int) -> str:
    """At most so many cells."""
    return cut(text, width).rstrip() if cell_len(text) > width else text


def right(text: str, width: int) -> str:
    """At the right of so many cells. Numbers are never cut."""
    return " " * (width - cell_len(text)) + text


def fit_path(path: str, width: int) -> str:
    """A path gives way at its front: `…/http/client.py`."""
    if cell_len(path) <= width:
        return path
    parts, end = path.rstrip("/").split("/"), "/" if path.endswith("/") else ""
    for n in range(1, len(parts)):
        if cell_len(short_path := f"…/{'/'.join(parts[n:])}{end}") <= width:
            return short_path
    return fits(f"{parts[-1]}{end}", width)


def fit_words(text: str, width: int) -> str:
    """The words of a row. A path loses its folders first, and its `+38 -11` last."""
    if cell_len(text) <= width:
        return cut(text, width)
    if _TROUBLE.match(text):  # whose trouble it is gives way before how long it takes
        return cut(text.partition(" ")[2], width)
    if (match := _CHANGE.fullmatch(text)) is None:
        return cut(text, width)
    verb, rest, parts = match["verb"], match["rest"], match["path"].split("/")
    for tail in (rest, ""):
        for n in range(1 if tail else len(parts) - 1, len(parts)):
            if cell_len(short_text := f"{verb} {'/'.join(parts[n:])}{tail}") <= width:
                return cut(short_text, width)
    return cut(f"{verb} {parts[-1]}", width)


def wrap(text: str, width: int) -> list[str]:
    """A text in pieces of at most so many cells, at spaces where there are some."""
    out: list[str] = []
    for word in text.split(" "):
        if out and cell_len(out[-1]) + 1 + cell_len(word) <= width:
            out[-1] += " " + word
        else:
            out += chop_cells(word, max(1, width)) or [""]
    return out


def wrap_line(line: Line, width: int, label: int = 0) -> list[Line]:
    """A line in pieces of at most so many cells, with the roles of its parts; it is broken where it
    is full, so that nothing is moved or lost. After a label of `label` cells a text is wrapped at
    its spaces, and continues below its beginning."""
    if label and len(line) == 2 and cell_len(line[0].text) == label < width - 8:
        first, *rest = wrap(line[1].text, width - label)
        pad = Cells(" " * label)
        text = line[1]
        return [
            [line[0], text._replace(text=first)],
            *([pad, text._replace(text=part)] for part in rest),
        ]
    out: list[Line] = [[]]
    room = max(1, width)
    for piece in line:
        for n, part in enumerate(_parts(piece.text, room, max(1, width))):
            if n:
                out.append([])
                room = max(1, width)
            out[-1].append(piece._replace(text=part))
            room -= cell_len(part)
    return out


def _parts(text: str, first: int, width: int) -> list[str]:
    if cell_len(text) <= first:
        return [text]
    head = chop_cells(text, max(1, first))[0] if first > 0 else ""
    return [head, *chop_cells(text[len(head) :], width)]
