"""A small graph in Mermaid as a terminal shows it: boxes in layers, or, when there are many, a
table of numbers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from retinue.view.graph_layers import Link, Pair, layers_of, links_of

MOST_BOXES, MOST_ARROWS = 6, 10
_BOX = re.compile(r'^(\w+)\["(.*)"\]$')
_ARROW = re.compile(r"^(\w+) ?-->\|(\d+)\| ?(\w+)$")
PLAIN = str.maketrans("┌┐└┘─│┼┬┴▼↑", "++++-|+++v^")


@dataclass(frozen=True, slots=True)
class AreaGraph:
    """Boxes with the lines of their labels, and the numbers at arrows."""

    labels: dict[str, list[str]]
    edges: dict[Pair, int]


def read_graph(code: str) -> AreaGraph | None:
    """A graph from Mermaid as our reports write it; None for anything else."""
    head, *lines = [line.strip() for line in code.strip().split("\n")]
    if head not in ("graph TD", "flowchart TD"):
        return None
    labels: dict[str, list[str]] = {}
    edges: dict[Pair, int] = {}
    for statement in (part for line in lines for part in line.split("; ") if part):
        if match := _BOX.match(statement):
            labels[match[1]] = match[2].split("<br>")
        elif match := _ARROW.match(statement):
            edges[match[1], match[3]] = int(match[2])
        else:
            return None
    is_known = all(a in labels and b in labels for a, b in edges)
    return AreaGraph(labels, edges) if labels and is_known else None


def picture(code: str, width: int, *, is_unicode: bool = True) -> str | None:
    """The graph in at most `width` columns; None if the code is not a graph that can be drawn."""
    graph = read_graph(code)
    if graph is None:
        return None
    clusters: dict[str, str] = {}
    filled = {k: [_filled(line, clusters) for line in v] for k, v in graph.labels.items()}
    graph = AreaGraph(filled, graph.edges)
    lines = None
    names = {name for pair in graph.edges for name in pair}
    if 0 < len(names) <= MOST_BOXES and len(graph.edges) <= MOST_ARROWS:
        labels = {name: label for name, label in graph.labels.items() if name in names}
        lines = boxes(AreaGraph(labels, graph.edges))
        alone = [", ".join(label) for name, label in graph.labels.items() if name not in names]
        lines += ["", *(f"without an arrow: {label}" for label in alone)] if alone else []
    if lines is None or max(map(len, lines), default=0) > width:
        lines = matrix(graph, width)
    text = "\n".join(line.rstrip() for line in lines).replace(FILL, "")
    for cluster, private in clusters.items():
        text = text.replace(private, cluster)
    return text if is_unicode else text.translate(PLAIN)


GAP, SPACE = 3, 2
FILL = "\0"
"""Comes after a wide character while a picture is drawn, so that a text has one character a
cell."""


FIRST_PRIVATE = 0xF0000
"""While a picture is drawn, characters of private use from here on replace letters with marks."""


def _filled(text: str, clusters: dict[str, str]) -> str:
    """A text with one character a cell. `clusters` collects what replaces letters that take
    several characters and have no composed form."""
    letters: list[str] = []
    for mark in unicodedata.normalize("NFC", text):
        if cell_len(mark):
            letters.append(mark)
        elif letters:
            letters[-1] += mark
    out = ""
    for letter in letters:
        one = letter
        if len(letter) > 1:
            one = clusters.setdefault(letter, chr(FIRST_PRIVATE + len(clusters)))
        out += one + FILL * (cell_len(letter) - 1)
    return out


class Canvas:
    """Characters by place; lines that cross are joined."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], str] = {}

    def put(self, x: int, y: int, text: str) -> None:
        for n, mark in enumerate(text):
            self._cells[x + n, y] = mark

    def line(self, x: int, y: int, mark: str) -> None:
        cell = self._cells.get((x, y), mark)
        self._cells[x, y] = mark if cell == mark else "┼"

    def rows(self) -> list[str]:
        height = max((y for _, y in self._cells), default=-1) + 1
        width = max((x for x, _ in self._cells), default=-1) + 1
        return ["".join(self._cells.get((x, y), " ") for x in range(width)) for y in range(height)]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where something of a layer is drawn."""

    x: int
    width: int

    @property
    def middle(self) -> int:
        return self.x + self.width // 2


Step = tuple[str, str, Link]
"""A line from one layer to the next."""


def boxes(graph: AreaGraph) -> list[str]:
    """Boxes in layers with lines between them. A number is below the box that uses; one after an
    arrow that points up counts what leads back."""
    links = links_of(graph.edges)
    layers = layers_of(list(graph.labels), links)
    spots = _spots(graph, layers, links)
    canvas, top = Canvas(), 0
    for depth, layer in enumerate(layers):
        bottom = top + max(len(graph.labels.get(name, ())) + 2 for name in layer)
        for name in layer:
            if name in graph.labels:
                _box(canvas, spots[name], (top, bottom), graph.labels[name])
            else:
                for y in range(top, bottom):
                    canvas.put(spots[name].x, y, "│")
        top = bottom
        if depth + 1 < len(layers):
            steps = _steps(links, layer, layers[depth + 1])
            top = _channel(canvas, graph, steps, spots, top)
    return canvas.rows()


def _steps(links: Sequence[Link], upper: Sequence[str], lower: Sequence[str]) -> list[Step]:
    return [
        (a, b, link)
        for link in links
        for a, b in zip(link.way, link.way[1:], strict=False)
        if a in upper and b in lower
    ]


def _spots(
    graph: AreaGraph, layers: Sequence[Sequence[str]], links: Sequence[Link]
) -> dict[str, Spot]:
    """Each layer from left to right, all of them around one middle."""
    widths = {name: _width(graph, name, links) for layer in layers for name in layer}
    totals = [sum(widths[name] + GAP for name in layer) - GAP for layer in layers]
    spots = {}
    for layer, total in zip(layers, totals, strict=True):
        x = (max(totals) - total) // 2
        for name in layer:
            spots[name] = Spot(x, widths[name])
            x += widths[name] + GAP
    return spots


def _width(graph: AreaGraph, name: str, links: Sequence[Link]) -> int:
    if name not in graph.labels:
        return 1
    text = max(len(line) for line in graph.labels[name]) + 4
    down = sum(len(link_text(link)) + SPACE + 1 for link in links if link.upper == name)
    up = 4 * sum(link.lower == name for link in links)
    return max(text, down + SPACE, up + SPACE)


def link_text(link: Link) -> str:
    return f"{link.n_down:,}" + (f" ↑{link.n_up:,}" if link.n_up else "")


def _box(canvas: Canvas, spot: Spot, rows: tuple[int, int], label: Sequence[str]) -> None:
    top, bottom = rows
    inner = spot.width - 2
    canvas.put(spot.x, top, f"┌{'─' * inner}┐")
    for y in range(top + 1, bottom - 1):
        n = y - top - 1
        text = label[n] if n < len(label) else ""
        canvas.put(spot.x, y, f"│ {text.ljust(inner - 1)}│")
    canvas.put(spot.x, bottom - 1, f"└{'─' * inner}┘")


def _channel(
    canvas: Canvas, graph: AreaGraph, steps: Sequence[Step], spots: dict[str, Spot], top: int
) -> int:
    """The lines from one layer to the next; returns where the next layer begins."""
    starts = _starts(graph, steps, spots)
    ends = _ends(graph, steps, spots, starts)
    bent = [n for n in range(len(steps)) if starts[n] != ends[n]]
    bent.sort(key=lambda n: (starts[n] > ends[n], -starts[n] if starts[n] < ends[n] else starts[n]))
    turns = {n: top + 1 + k for k, n in enumerate(bent)}
    bottom = top + len(bent) + 2
    for n in range(len(steps)):
        turn = turns.get(n, bottom)
        for y in range(top, turn):
            canvas.line(starts[n], y, "│")
        for y in range(turn + 1, bottom):
            canvas.line(ends[n], y, "│")
    for n, turn in turns.items():
        for x in range(min(starts[n], ends[n]) + 1, max(starts[n], ends[n])):
            canvas.line(x, turn, "─")
        canvas.put(starts[n], turn, "└" if starts[n] < ends[n] else "┘")
        canvas.put(ends[n], turn, "┐" if starts[n] < ends[n] else "┌")
    for n, (upper, lower, link) in enumerate(steps):
        if lower in graph.labels:
            canvas.put(ends[n], bottom - 1, "▼")
        if upper in graph.labels:
            canvas.put(starts[n] + 1, top, link_text(link))
    return bottom


def _starts(graph: AreaGraph, steps: Sequence[Step], spots: dict[str, Spot]) -> list[int]:
    """The columns where lines leave, next to each other in the order of what they lead to."""
    ports = [spots[upper].x for upper, _, _ in steps]
    for name in dict.fromkeys(upper for upper, _, _ in steps if upper in graph.labels):
        mine = [n for n, step in enumerate(steps) if step[0] == name]
        mine.sort(key=lambda n: (spots[steps[n][1]].middle, n))
        sizes = [len(link_text(steps[n][2])) + SPACE + 1 for n in mine]
        x = spots[name].x + max(1, (spots[name].width - sum(sizes) + SPACE) // 2)
        for n, size in zip(mine, sizes, strict=True):
            ports[n] = x
            x += size
    return ports


def _ends(
    graph: AreaGraph, steps: Sequence[Step], spots: dict[str, Spot], starts: Sequence[int]
) -> list[int]:
    """The columns where lines arrive: straight below where they left, if that meets the box."""
    ports = [spots[lower].x for _, lower, _ in steps]
    for name in dict.fromkeys(lower for _, lower, _ in steps if lower in graph.labels):
        mine = [n for n, step in enumerate(steps) if step[1] == name]
        mine.sort(key=lambda n: (starts[n], n))
        first, last = spots[name].x + 1, spots[name].x + spots[name].width - 2
        for k, n in enumerate(mine):
            latest = last - 2 * (len(mine) - 1 - k)
            ports[n] = min(max(starts[n], first), latest)
            first = ports[n] + 2
    return ports


def matrix(graph: AreaGraph, width: int) -> list[str]:
    """Rows use columns. Where names are too wide for the columns, rows have numbers."""
    names = {key: label[0] for key, label in graph.labels.items()}
    rows = _matrix(graph, names, list(names.values()), "from \\ to")
    if max(map(len, rows)) <= width:
        return rows
    numbers = [str(n) for n in range(1, len(names) + 1)]
    numbered = {key: f"{n:>2} {names[key]}" for n, key in enumerate(names, start=1)}
    return _matrix(graph, numbered, numbers, "   from \\ to")


def _matrix(
    graph: AreaGraph, rows: dict[str, str], columns: Sequence[str], corner: str
) -> list[str]:
    first = max(len(name) for name in (*rows.values(), corner))
    table = [[_number(graph, user, used) for used in rows] for user in rows]
    widths = [max(len(column), *(len(row[n]) for row in table)) for n, column in enumerate(columns)]
    lines = [
        [corner, *columns],
        *([rows[user], *row] for user, row in zip(rows, table, strict=True)),
    ]
    return [
        f"{head:<{first}} " + " ".join(f"{x:>{w}}" for x, w in zip(cells, widths, strict=True))
        for head, *cells in lines
    ]


def _number(graph: AreaGraph, user: str, used: str) -> str:
    if user == used:
        return "-"
    n = graph.edges.get((user, used), 0)
    return str(n) if n else "."
