"""Ranks definitions for the words of a question: BM25 over names, owners, docstrings and file
names. And names that are near to an unknown one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from retinue.syntax.facts import CALLABLE_KINDS, DefinitionSite
from retinue.syntax.question_words import all_words
from retinue.syntax.source_languages import call_family
from retinue.syntax.source_tree import SourceTree, TreeFile
from retinue.syntax.symbol_answers import FoundDefinition, FoundPlace, WordAnswer
from retinue.syntax.symbol_lookup import around_call, found_definition

MOST_HITS = 10
MOST_NEAR = 3
MOST_CALLED = 3
MOST_CALLS = 12
NAME_WEIGHT = 3
K1, B = 1.2, 0.75


def rank(tree: SourceTree, words: Sequence[str], *, full: bool) -> WordAnswer:
    documents = _documents(tree)
    frequency: Counter[str] = Counter()
    for counts, _, _ in documents:
        frequency.update(counts.keys())
    mean = sum(c.total() for c, _, _ in documents) / max(1, len(documents))
    scored = []
    for counts, file, one in documents:
        score = _score(counts, words, frequency, len(documents), mean)
        if score > 0:
            scored.append((-round(score, 4), file.path, one.line, file, one))
    scored.sort(key=lambda item: item[:3])
    best = scored[: MOST_HITS * (5 if full else 1)]
    hits = tuple(found_definition(f, d, score=-s) for s, _, _, f, d in best)
    return WordAnswer(
        words=tuple(words),
        n_definitions=len(documents),
        n_files=len(tree.source),
        hits=hits,
        owners=_owners(tree, hits),
        calls=_calls(tree, hits),
        same_name=_same_names(tree, hits),
        near=() if hits else nearest(tree, words[0] if words else ""),
        at_least=tuple(p for p, f in tree.source.items() if f.facts and f.facts.errors),
    )


Document = tuple[Counter[str], TreeFile, DefinitionSite]


def _documents(tree: SourceTree) -> list[Document]:
    out: list[Document] = []
    for file in tree.source.values():
        if file.facts is None:
            continue
        base = all_words(file.path.rpartition("/")[2].partition(".")[0])
        for one in file.facts.definitions:
            if "local" in one.marks:
                continue
            bag = Counter(base)
            for word in all_words(one.name):
                bag[word] += NAME_WEIGHT
            bag.update(all_words(one.owner))
            bag.update(all_words(one.doc))
            out.append((bag, file, one))
    return out


def _score(
    counts: Counter[str], words: Sequence[str], frequency: Counter[str], n: int, mean: float
) -> float:
    total = 0.0
    norm = K1 * (1 - B + B * counts.total() / (mean or 1))
    for word in words:
        if times := counts.get(word, 0):
            rare = math.log(1 + (n - frequency[word] + 0.5) / (frequency[word] + 0.5))
            total += rare * times * (K1 + 1) / (times + norm)
    return total


def _owners(tree: SourceTree, hits: Sequence[FoundDefinition]) -> tuple[FoundDefinition, ...]:
    """The types around hits that are no hits themselves."""
    have = {(h.path, h.title) for h in hits}
    titles = {(h.path, h.title.rpartition(".")[0]) for h in hits} - have
    out = []
    for path, title in sorted(titles):
        facts = tree.files[path].facts
        for one in facts.definitions if facts is not None and title else ():
            if one.title == title and one.kind not in CALLABLE_KINDS:
                out.append(found_definition(tree.files[path], one))
                break
    return tuple(out)


def _called(hits: Sequence[FoundDefinition]) -> list[str]:
    names = [h.title.rpartition(".")[2] for h in hits if h.kind in CALLABLE_KINDS]
    return [n for n in dict.fromkeys(names) if not n.startswith("__") and len(n) > 3][:MOST_CALLED]


def _calls(tree: SourceTree, hits: Sequence[FoundDefinition]) -> tuple[FoundPlace, ...]:
    """Calls of the best functions, by name, in source."""
    names = set(_called(hits))
    known = {(call_family(h.language), h.title.rpartition(".")[2]) for h in hits}
    out = []
    for file in tree.source.values():
        for call in file.facts.calls if file.facts is not None else ():
            if call.name in names and (call_family(file.language), call.name) in known:
                title = around_call(file, call)
                out.append(FoundPlace(file.path, call.line, call.name, title))
    return tuple(out[:MOST_CALLS])


def _same_names(tree: SourceTree, hits: Sequence[FoundDefinition]) -> dict[str, int]:
    counts = Counter(
        d.name for f in tree.source.values() if f.facts is not None for d in f.facts.definitions
    )
    return {name: counts[name] for name in _called(hits)}


def nearest(tree: SourceTree, name: str) -> tuple[FoundDefinition, ...]:
    """Definitions whose names are nearest: one edit away, the same but for case, the same ending;
    of one name, the first."""
    low = name.lower()
    best: list[tuple[tuple[int, int, str, str, int], TreeFile, DefinitionSite]] = []
    for file in (*tree.source.values(), *tree.of_role("test", "aside")):
        for one in file.facts.definitions if file.facts is not None else ():
            far = _distance(low, one.name.lower())
            if far is not None:
                side = (far, abs(len(one.name) - len(name)), one.name, file.path, one.line)
                best.append((side, file, one))
    best.sort(key=lambda item: item[0])
    out: dict[str, FoundDefinition] = {}
    for _, file, one in best:
        out.setdefault(one.name, found_definition(file, one))
        if len(out) == MOST_NEAR:
            break
    return tuple(out.values())


def _distance(a: str, b: str) -> int | None:
    if a == b:
        return 0
    if abs(len(a) - len(b)) <= 2 and len(a) > 2 and (far := _edits(a, b)) <= 2:
        return far
    if len(a) > 3 and (b.endswith(a) or b.startswith(a)):
        return 3
    if len(b) > 4 and a.endswith(b):
        return 4
    shared = len(set(all_words(a)) & set(all_words(b)))
    return 9 - min(shared, 4) if shared else None


def _edits(a: str, b: str) -> int:
    """Letters that were added, removed, changed or swapped, counted up to three."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, row, above = row, [i], before
        for j, right in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != right))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == right:
                cost = min(cost, above[j - 2] + 1)
            row.append(cost)
        if min(row) > 2:
            return 3
    return row[-1]
