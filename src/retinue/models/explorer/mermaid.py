"""A graph of areas as Mermaid: one statement per line while it is small, else several per line, so
that it fits a page."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.models.explorer.report_text import WIDTH, plural
from retinue.syntax.overview.map_facts import AreaEdge, AreaRow

MOST_LINES = 16


def graph(areas: Sequence[AreaRow], edges: Sequence[AreaEdge]) -> str:
    """The areas as boxes and the edges between them, with their numbers."""
    ids = {area.name: _id(n) for n, area in enumerate(areas)}
    boxes = [f'{ids[area.name]}["{_label(area)}"]' for area in areas]
    arrows = [f"{ids[e.user]} -->|{e.n}| {ids[e.used]}" for e in edges]
    rows = [*boxes, *arrows]
    if len(rows) > MOST_LINES:  # files and lines of each area are in the table below
        names = [f'{ids[area.name]}["{_name(area)}"]' for area in areas]
        short = [arrow.replace(" ", "") for arrow in arrows]
        rows = [*_packed(names), *_packed(short)]
    return "\n".join(["```mermaid", "graph TD", *(f"    {row}" for row in rows), "```"])


def _id(n: int) -> str:
    return chr(ord("A") + n) if n < 26 else f"A{n}"


def _label(area: AreaRow) -> str:
    name = _name(area)
    if area.n_files == 1 and not area.name.endswith(("/", "*")):
        return f"{name}<br>{plural(area.n_lines, 'line')}"
    return f"{name}<br>{plural(area.n_files, 'file')}, {plural(area.n_lines, 'line')}"


def _name(area: AreaRow) -> str:
    return area.name.replace('"', "'").replace("\n", " ")


def _packed(rows: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for row in rows:
        if lines and len(lines[-1]) + len(row) + 2 <= WIDTH - 4:
            lines[-1] += f"; {row}"
        else:
            lines.append(row)
    return lines
