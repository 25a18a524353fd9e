"""Chooses the rows of a tree to show when not all fit: deep ones fold into their parents, the most
important ones and those already shown stay, and the rest is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from retinue.view.grid import TreeRow, folded_row, guides
from retinue.view.rows import TreeView
from retinue.view.run_node import walk
from retinue.view.run_row import RunRow
from retinue.view.state_marks import MARKS, counted

URGENCY = {name: n for n, name in enumerate(MARKS)} | {"thinking": 2, "cancelling": 2}


class ShownRows(NamedTuple):
    """`rows` from top to bottom, and what is said of those that have no room."""

    rows: tuple[TreeRow, ...]
    rest: str = ""


class RowChoice:
    """Remembers which rows are shown, so that they stay where they are, and what a person has
    folded."""

    def __init__(self, view: TreeView) -> None:
        self._view = view
        self._shown: set[str] = set()
        self._first = 0
        self.folded: set[str] = set()
        self.cancelled: set[str] = set()

    def rows(self, now: int, room: int, selected: str = "") -> ShownRows:
        """Of everything below the first run of the view."""
        order, below = self._unfolded(room)
        if not order or room < 1:
            return ShownRows(())
        picked, rest = order, list[str]()
        if len(order) > room and selected in order:
            picked, rest = self._window(order, room - 1, selected)
        elif len(order) > room:
            picked, rest = self._urgent(order, room - 1)
        self._shown = set(picked)
        rows = [self.row(id, now, below.get(id, 0)) for id in picked]
        base = self._view.tops[0].spec.depth
        texts = [
            TreeRow(row, bars, below.get(row.id, 0), row.id == selected)
            for row, bars in zip(rows, guides(rows, base), strict=True)
        ]
        return ShownRows(tuple(texts), self._more(rest) if rest else "")

    def order(self) -> list[str]:
        """What can be selected: every row that is not folded away."""
        return self._visible(10_000)

    def row(self, id: str, now: int, n_folded: int = 0) -> RunRow:
        """One row. Of what is folded below it, it tells what is louder than itself."""
        row, node = self._view.row(id, now), self._view.nodes[id]
        if id in self.cancelled and not row.is_over:
            return replace(row, state="cancelling", mark="cancelling")
        if not n_folded:
            return row
        return folded_row(
            row, (self._view.row(n.spec.id, now) for n in walk(node) if n is not node)
        )

    def _visible(self, depth: int) -> list[str]:
        """The ids of rows down to a depth, without those below what a person has folded."""
        out: list[str] = []
        todo = [n for top in self._view.tops[:1] for n in reversed(top.children)]
        base = self._view.tops[0].spec.depth if self._view.tops else 0
        while todo:
            node = todo.pop()
            out.append(node.spec.id)
            if node.spec.depth - base < depth and node.spec.id not in self.folded:
                todo.extend(reversed(node.children))
        return out

    def _unfolded(self, room: int) -> tuple[list[str], dict[str, int]]:
        """As many levels as have room, and how many are folded below each row."""
        deepest = max((n.spec.depth for n in self._view.nodes.values()), default=0)
        base = self._view.tops[0].spec.depth if self._view.tops else 0
        order: list[str] = []
        for depth in range(max(1, deepest - base), 0, -1):
            order = self._visible(depth)
            if len(order) <= room:
                break
        visible = set(order)
        below = {}
        for id in order:
            node = self._view.nodes[id]
            if node.children and node.children[0].spec.id not in visible:
                below[id] = sum(1 for _ in walk(node)) - 1
        return order, below

    def _window(
        self, order: Sequence[str], room: int, selected: str
    ) -> tuple[list[str], list[str]]:
        """What is around the selected row; it scrolls only when the selection leaves it."""
        at = order.index(selected)
        first = min(max(self._first, at - room + 1), at)
        first = self._first = max(0, min(first, len(order) - room))
        return list(order[first : first + room]), [*order[:first], *order[first + room :]]

    def _urgent(self, order: Sequence[str], room: int) -> tuple[list[str], list[str]]:
        """The loudest first; those that are shown keep their place among equals."""
        nodes, visible = self._view.nodes, self._shown
        ranked = sorted(
            range(len(order)),
            key=lambda i: (URGENCY[nodes[order[i]].mark], order[i] not in visible, i),
        )
        places = set(ranked[:room])
        return [id for i, id in enumerate(order) if i in places], [
            id for i, id in enumerate(order) if i not in places
        ]

    def _more(self, rest: Sequence[str]) -> str:
        """`+188 more: 150 done, 38 working`."""
        counts = Counter(self._view.nodes[id].mark for id in rest)
        parts = sorted(counted(counts, is_merged=True), key=lambda item: -item[1])
        return f"+{len(rest)} more: {', '.join(f'{n} {MARKS[name].word}' for name, n in parts)}"
