"""Notes for people on a terminal, wrapped at parts or words and indented, so that the terminal does
not wrap them."""

from __future__ import annotations

import re

from rich.cells import cell_len

from retinue.view.cells import wrap

_LABEL = re.compile(r"(retinue: |\d+:[\d:]+ (?:[^\w\s] )?|  [a-z]+ +(?=\S)|! |  )?")
_COMMAND = re.compile(r"`[^`]{1,40}`")
KEPT = "\N{NO-BREAK SPACE}"
"""A space of one cell at which nothing is broken: that of a command."""
MOST_INDENT = 24
DOT = " · "


def note_lines(text: str, width: int) -> list[str]:
    """One line of text in lines of at most so many cells."""
    if cell_len(text) <= width:
        return [text]
    match = _LABEL.match(text)
    label = match[0] if match is not None and len(match[0]) <= MOST_INDENT else ""
    room = max(10, width - max(2, len(label)))
    body = _COMMAND.sub(lambda match: match[0].replace(" ", KEPT), text[len(label) :])
    first, *rest = (part.replace(KEPT, " ") for part in _parts(body, room))
    indent = " " * max(2, len(label))
    return [f"{label}{first}", *(f"{indent}{part}" for part in rest)]


def _parts(text: str, width: int) -> list[str]:
    """Broken between parts that have a dot between them, else between words."""
    lines: list[str] = []
    for part in text.split(DOT):
        if lines and cell_len(f"{lines[-1]}{DOT}{part}") <= width:
            lines[-1] += f"{DOT}{part}"
        else:
            lines += wrap(part, width)
    return lines
