"""Boxes in layers, users above what they use, as a picture of a small graph needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Pair = tuple[str, str]


@dataclass
class Link:
    """A line between two boxes, drawn downwards. `n_up` counts what leads back."""

    upper: str
    lower: str
    n_down: int
    n_up: int
    way: list[str] = field(default_factory=list)
    """The boxes and the gaps between boxes that it passes, from top to bottom."""


def links_of(edges: Mapping[Pair, int]) -> list[Link]:
    """One link for each pair: the larger number leads down. Links that would close a circle are
    turned around, the smallest first."""
    links = []
    for (a, b), n in sorted(edges.items()):
        back = edges.get((b, a), 0)
        if n > back or (n == back and a < b):
            links.append(Link(a, b, n, back))
    links.sort(key=lambda link: (-link.n_down, link.upper, link.lower))
    below: dict[str, set[str]] = {}
    for link in links:
        if link.upper in _reached(link.lower, below):
            link.upper, link.lower = link.lower, link.upper
            link.n_down, link.n_up = link.n_up, link.n_down
        below.setdefault(link.upper, set()).add(link.lower)
    return links


def _reached(start: str, below: Mapping[str, Iterable[str]]) -> set[str]:
    nodes, waiting = {start}, [start]
    while waiting:
        for following in below.get(waiting.pop(), ()):
            if following not in nodes:
                nodes.add(following)
                waiting.append(following)
    return nodes


def layers_of(names: Sequence[str], links: Sequence[Link]) -> list[list[str]]:
    """The boxes of each layer, and the gaps (names that are not boxes) through which longer links
    pass; each link gets its way."""
    level = dict.fromkeys(names, 0)
    for _ in names:
        for link in links:
            level[link.lower] = max(level[link.lower], level[link.upper] + 1)
    layers: list[list[str]] = [[] for _ in range(max(level.values(), default=0) + 1)]
    for name in names:
        layers[level[name]].append(name)
    for n, link in enumerate(links):
        link.way = [link.upper]
        for depth in range(level[link.upper] + 1, level[link.lower]):
            gap = f"\0{n}.{depth}"
            layers[depth].append(gap)
            link.way.append(gap)
        link.way.append(link.lower)
    for depth in range(1, len(layers)):
        _order(layers, depth, links)
    return layers


def _order(layers: list[list[str]], depth: int, links: Sequence[Link]) -> None:
    """The boxes of a layer below those that lead to them."""
    above = {name: n for n, name in enumerate(layers[depth - 1])}
    middles: dict[str, list[int]] = {}
    for link in links:
        for upper, lower in zip(link.way, link.way[1:], strict=False):
            if upper in above and lower in layers[depth]:
                middles.setdefault(lower, []).append(above[upper])
    place = {name: n for n, name in enumerate(layers[depth])}
    layers[depth].sort(
        key=lambda name: (
            sum(middles[name]) / len(middles[name]) if name in middles else place[name],
            place[name],
        )
    )
