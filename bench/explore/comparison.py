"""Two lists of definitions compared by file, name and line, with two lines of play."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from retinue.syntax.facts import CALLABLE_KINDS, TYPE_KINDS
from retinue.syntax.source_tree import SourceTree

PLAY = 2
UNSEEN = {
    ("go", "type", "local"): "types inside functions, which ctags skips",
    ("java", "callable", "anonymous"): "methods of anonymous classes, which ctags skips",
    ("java", "callable", "local"): "methods inside methods, which ctags skips",
    ("java", "type", "local"): "classes inside methods, which ctags skips",
    ("cpp", "type", "local"): "types inside functions, which ctags skips",
}
"""What an oracle cannot see, by language, side and mark: left out of precision, and counted."""


@dataclass(frozen=True, slots=True)
class Tag:
    path: str
    name: str
    line: int
    side: str
    marks: tuple[str, ...] = ()


@dataclass
class Figures:
    """`both` were found by both; `unseen` only here, of a kind that the oracle cannot see."""

    both: int = 0
    only_here: int = 0
    only_there: int = 0
    unseen: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        return self.both / max(1, self.both + self.only_here)

    @property
    def recall(self) -> float:
        return self.both / max(1, self.both + self.only_there)

    def add(self, other: Figures) -> None:
        self.both += other.both
        self.only_here += other.only_here
        self.only_there += other.only_there
        self.unseen.update(other.unseen)
        self.examples += other.examples

    def row(self) -> dict[str, object]:
        return {
            "both": self.both,
            "only_here": self.only_here,
            "only_there": self.only_there,
            "precision": round(self.precision, 4),
            "recall": round(self.recall, 4),
            "left_out_by_rule": dict(sorted(self.unseen.items())),
            "examples": self.examples[:8],
        }


def plain(name: str) -> str:
    return re.sub(r"\s+", "", name.replace("::", ".").rpartition(".")[2] or name)


def ours(tree: SourceTree, languages: Sequence[str]) -> list[Tag]:
    out = []
    for path, facts in tree.parsed.items():
        if tree.files[path].language in languages:
            for one in facts.definitions:
                side = "callable" if one.kind in CALLABLE_KINDS else ""
                side = "type" if one.kind in TYPE_KINDS else side
                if side:
                    out.append(Tag(path, one.name, one.line, side, one.marks))
    return out


def compare(language: str, side: str, mine: Iterable[Tag], theirs: Iterable[Tag]) -> Figures:
    figures = Figures()
    rest: dict[tuple[str, str], list[int]] = defaultdict(list)
    for tag in theirs:
        if tag.side == side:
            rest[tag.path, plain(tag.name)].append(tag.line)
    for tag in sorted((t for t in mine if t.side == side), key=lambda t: (t.path, t.line)):
        lines = rest[tag.path, plain(tag.name)]
        near = min(lines, key=lambda line: abs(line - tag.line), default=None)
        if near is not None and abs(near - tag.line) <= PLAY:
            lines.remove(near)
            figures.both += 1
            continue
        mark = next((m for m in tag.marks if (language, side, m) in UNSEEN), "")
        if mark:
            figures.unseen[UNSEEN[language, side, mark]] += 1
        else:
            figures.only_here += 1
            figures.examples.append(f"only here: {tag.path}:{tag.line} {tag.name}")
    for (path, name), lines in sorted(rest.items()):
        figures.only_there += len(lines)
        figures.examples += [f"only there: {path}:{line} {name}" for line in lines]
    return figures
