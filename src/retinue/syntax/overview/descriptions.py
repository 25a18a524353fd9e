"""The description of an area: a docstring or first comment of its main file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from posixpath import basename, splitext

from retinue.syntax.project import readme
from retinue.syntax.project.places import Place, Quote, first_sentence, is_licence
from retinue.syntax.source_tree import SourceTree

SPEAKERS = re.compile(r"^(?:__init__\.py|lib\.rs|mod\.rs|doc\.go|index\.[cm]?[jt]sx?)$")
_EMPTY = re.compile(
    r"go:build|module (?:dependencies|exports)|eslint|jshint|^!|use strict|-\*-", re.IGNORECASE
)
_GO = re.compile(r"(?:Package|Command|The)\b")
LONGEST = 160
LEAST_LETTERS = 12


def purpose(tree: SourceTree, described: Quote | None) -> Quote | None:
    """What the project is: a manifest's description, its README, or a package's docstring."""
    if described is not None and not is_licence(described.text):
        return Quote(first_sentence(described.text), described.place)
    path = readme.readme_of(tree.texts)
    quote = readme.first_paragraph(path, tree.texts[path]) if path else None
    if quote is not None:
        return Quote(first_sentence(quote.text), quote.place)
    heads = [p for p in tree.source if SPEAKERS.match(basename(p))]
    for head in sorted(heads, key=lambda p: (p.count("/"), p))[:3]:
        words_quote = file_words(tree, head)
        if words_quote is not None:
            return words_quote
    return None


def description(tree: SourceTree, area: str, files: Sequence[str]) -> Quote | None:
    """What an area says: its README, or the file that speaks for all of it. What another file says
    is about that file."""
    own = readme.readme_of(tree.texts, area.rstrip("/")) if area.endswith("/") else ""
    if own and own.count("/"):
        quote = readme.first_paragraph(own, tree.texts[own])
        if quote is not None:
            return Quote(_short(first_sentence(quote.text)), quote.place)
    for path in sorted(files, key=lambda p: (-tree.files[p].size, p)):
        words_quote = file_words(tree, path) if len(files) == 1 or _speaks(area, path) else None
        if words_quote is not None and not (
            path.endswith(".go") and not _GO.match(words_quote.text)
        ):
            return words_quote
    return None


def _speaks(area: str, path: str) -> bool:
    """Whether a file speaks for its area: by its name, in Go any file of the package."""
    if area.endswith("*"):
        return splitext(path)[0] == area.rstrip("*")
    name = basename(path)
    return path == f"{area}{name}" and (path.endswith(".go") or SPEAKERS.match(name) is not None)


def file_words(tree: SourceTree, path: str) -> Quote | None:
    """The first sentence of a file's docstring or first comment."""
    facts = tree.parsed.get(path)
    if facts is None or not facts.doc or is_licence(facts.doc) or _EMPTY.search(facts.doc):
        return None
    sentence = first_sentence(facts.doc)
    if sum(c.isalpha() for c in sentence) < LEAST_LETTERS or " " not in sentence:
        return None
    return Quote(_short(sentence), Place(path, facts.doc_line))


def _short(text: str) -> str:
    """A long sentence is quoted up to a word, which a mark says."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST].rsplit(' ', 1)[0]} [...]"
