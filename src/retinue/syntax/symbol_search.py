"""Answers a question about symbols: exact identifiers first, then words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from threading import Event

from retinue.syntax.question_words import AskedWords, last_name, read_question
from retinue.syntax.roles import LEFT_OUT, MOST_BYTES
from retinue.syntax.source_tree import PARSED_ROLES
from retinue.syntax.symbol_answers import FindAnswer, NameAnswer
from retinue.syntax.symbol_lookup import READ, NameLookup
from retinue.syntax.symbol_ranking import nearest, rank
from retinue.syntax.syntax_engine import Inventory, SyntaxEngine
from retinue.syntax.tree_files import TreeFiles

MOST_NAMES = 3
MOST_LISTED = 40


def find_symbols(
    engine: SyntaxEngine, files: TreeFiles, text: str, full: bool, stop: Event
) -> FindAnswer:
    question = read_question(text)
    names = (question.names or question.maybe)[:MOST_NAMES]
    words = [w for w in (last_name(n)[1].encode() for n in names) if w]

    def wants(path: str, data: bytes) -> bool:
        return any(word in data for word in words)

    inventory = engine.inventory(files, wants, stop)
    answers = [_named(engine, files, inventory, name, question, full, stop) for name in names]
    answers_found = [a for a in answers if a is not None]
    ranked = None
    if not answers_found:
        tree = engine.tree(files, inventory, inventory.files, stop)
        ranked = rank(tree, question.words, full=full)
    return FindAnswer(
        names=tuple(answers_found),
        words=ranked,
        left_out=_left_out(inventory),
        problems=tuple(f"{p}: {f.problem}" for p, f in inventory.files.items() if f.problem)[
            :MOST_LISTED
        ],
        gaps=tuple(inventory.gaps),
    )


def _named(
    engine: SyntaxEngine,
    files: TreeFiles,
    inventory: Inventory,
    name: str,
    question: AskedWords,
    full: bool,
    stop: Event,
) -> NameAnswer | None:
    """None when a plain word is the name of nothing: then it is a word and no identifier."""
    word = last_name(name)[1].encode()
    pattern = re.compile(rb"(?<![\w$])" + re.escape(word) + rb"(?![\w$])")
    texts = _texts(files, inventory, inventory.with_word(word), pattern)
    tree = engine.tree(files, inventory, texts, stop)
    n_parsed = sum(f.role in PARSED_ROLES for f in inventory.files.values())
    answer = NameLookup(tree, name, texts, n_parsed).answer((), full=full)
    if answer.definitions:
        return answer
    if name not in question.names:
        return None
    whole = engine.tree(files, inventory, inventory.files, stop)
    near = nearest(whole, word.decode())
    return NameLookup(tree, name, texts, n_parsed).answer(near, full=full)


def _texts(
    files: TreeFiles, inventory: Inventory, paths: Sequence[str], pattern: re.Pattern[bytes]
) -> dict[str, bytes]:
    """The bytes of files that have the word, of those that are searched."""
    out: dict[str, bytes] = {}
    for path in paths:
        if inventory.files[path].role in READ:
            try:
                data = files.read(path, MOST_BYTES)
            except OSError:
                continue
            if pattern.search(data):
                out[path] = data
    return out


def _left_out(inventory: Inventory) -> dict[str, int]:
    counts: dict[str, int] = {}
    for file in inventory.files.values():
        if file.role in LEFT_OUT:
            counts[file.role] = counts.get(file.role, 0) + 1
    return dict(sorted(counts.items()))
