"""Loads grammars and queries when the first file of their language is read. A query is ours, one
short file a language: the name of a capture says what was found."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.syntax.source_languages import LANGUAGES

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query, Tree

QUERIES = Path(__file__).with_name("queries")
FILES = {
    "typescript": ("javascript", "typescript"),
    "tsx": ("javascript", "typescript"),
    "cpp": ("c", "cpp"),
}
ERRORS, MISSING = "(ERROR) @error", "(MISSING) @error"
GUESSING = {"c", "cpp", "bash"}
"""In these, a token that the parser adds is not an error: it is a macro, or a form that the
grammar lacks."""


@cache
def grammar(language: str) -> tuple[Parser, Query]:
    from tree_sitter import Language, Parser, Query

    known_language = LANGUAGES[language]
    rules = Language(
        getattr(importlib.import_module(known_language.module), known_language.maker)()
    )
    return Parser(rules), Query(rules, query_text(language))


def query_text(language: str) -> str:
    names = FILES.get(language, (language,))
    parts = [(QUERIES / f"{name}.scm").read_text(encoding="utf-8") for name in names]
    errors = [ERRORS] if language in GUESSING else [ERRORS, MISSING]
    return "\n".join([*parts, *errors])


def parse(language: str, data: bytes) -> Tree:
    """The syntax tree of a file; it keeps the bytes alive."""
    return grammar(language)[0].parse(data)


def captured(language: str, root: Node) -> dict[str, list[Node]]:
    """The nodes of each capture, in the order of the file. (The library promises none.)"""
    from tree_sitter import QueryCursor

    captures = QueryCursor(grammar(language)[1]).captures(root)
    return {name: sorted(nodes, key=_place) for name, nodes in captures.items()}


def _place(node: Node) -> tuple[int, int]:
    return node.start_byte, -node.end_byte
