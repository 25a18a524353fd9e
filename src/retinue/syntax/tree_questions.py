"""The questions that a source tree can answer: each is a pure function of the tree with a JSON
value as its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from retinue.syntax.overview.survey import area_answer, map_answer
from retinue.syntax.source_tree import SourceTree


@dataclass(frozen=True, slots=True)
class TreeQuestion:
    """`text` is what a person asked, `area` a part of the tree, `full` more than fits a page.
    `folder` is the name of the tree's folder."""

    text: str = ""
    path: str = "."
    area: str = ""
    full: bool = False
    folder: str = ""


QUESTIONS: dict[str, Callable[[SourceTree, TreeQuestion], object]] = {
    "map": lambda tree, question: map_answer(tree, question.folder, full=question.full),
    "area": lambda tree, question: area_answer(tree, question.area, full=question.full),
}
