"""Caches answers about the last tree while none of its files changes: sub-agents ask about areas
right after their lead asked about the whole tree."""

from __future__ import annotations

import hashlib
from threading import Event, Lock
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from retinue.syntax.syntax_engine import SyntaxEngine
    from retinue.syntax.tree_files import OpenTree
    from retinue.syntax.tree_questions import TreeQuestion

Key = tuple[str, str, bool]


class KeptAnswers:
    """What is kept are answers, not the tree: they are small. What a run may not see is not an
    entry of the tree, so another run with other rules does not get its answers."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tree = b""
        self._answers: dict[Key, object] = {}

    def answer(
        self,
        engine: SyntaxEngine,
        files: OpenTree,
        question: str,
        tree_question: TreeQuestion,
        stop: Event,
    ) -> object:
        """The answer to a question about the tree. A request during another one's reading of the
        tree waits for it."""
        from retinue.syntax.overview.survey import area_answers
        from retinue.syntax.tree_questions import QUESTIONS

        key = (question, tree_question.area, tree_question.full)
        with self._lock:
            name = _name(files)
            if name != self._tree:
                self._tree, self._answers = name, {}
            if key not in self._answers:
                tree = engine.read_tree(files, stop)
                self._answers[key] = QUESTIONS[question](tree, tree_question)
                if question == "map":
                    for area, rows in area_answers(tree, full=tree_question.full).items():
                        self._answers["area", area, tree_question.full] = rows
            return self._answers[key]


def _name(files: OpenTree) -> bytes:
    """What is the same as long as the tree is."""
    entries, why = files.entries()
    return hashlib.blake2b(msgspec.msgpack.encode((files.key, entries, why))).digest()
