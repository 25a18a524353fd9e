"""The documentation of a definition or file: the docstring at its start, or the comment that ends
on the line above it. A licence says nothing of the code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_CHARACTERS = 600
NOT_A_WORD_OF_ITS_OWN = re.compile(
    r"copyright|licen[cs]e|permission is hereby|\$OpenBSD|\$Id|SPDX|all rights reserved|"
    r"^\s*(?:go:build|\+build|eslint|jshint|@ts-|prettier-|noinspection|vim?:|-\*-|!)|"
    r"^module (?:dependencies|exports|variables)\.?$|^please (?:send|report) ",
    re.IGNORECASE | re.MULTILINE,
)
_FOR_A_TOOL = re.compile(
    r"^(?:frozen_string_literal|warn_indent|shareable_constant_value|(?:en)?coding|typed)\s*[:=]"
    r"|^(?:rubocop|pylint|mypy|flake8|ruff|noqa|shellcheck|standard|clang-format)\b.*[:=]"
)
"""A line that a program reads, though it is a comment."""
_TAG = re.compile(r"^[@\\](?!brief\b)[A-Za-z]+\b")
_BRIEF = re.compile(r"^[@\\]brief\s+")
_MARKS = re.compile(r"^\s*(?://[/!]?|/\*[*!]*|\*+/|\*|#+|=begin|=end)[ \t]?|\s*\*+/\s*$")
_QUOTES = re.compile(r"^[rbuRBU]*(?:\"\"\"|'''|\"|')|(?:\"\"\"|'''|\"|')$")
_UNDERLINE = re.compile(r"[=~^*#\-]{3,}")
_CODE = re.compile(r"[;{}]$|^(?:import|export|const|let|var|use|#include)\b|\w\(.*\);?$")
_SENTENCE = re.compile(r"[^\W\d_]{2}.* .*[^\W\d_]")


def paragraph(text: str) -> tuple[str, int]:
    """The first paragraph that is not a heading, and the number of lines before it. It is cut
    between words: half a word may be half a secret."""
    lines: list[str] = []
    first = 0
    for number, line in enumerate(map(str.strip, text.splitlines())):
        if lines and _UNDERLINE.fullmatch(line):
            lines = []
        elif line:
            first = number if not lines else first
            lines.append(line)
        elif lines:
            break
    out = " ".join(lines)
    if len(out) > MOST_CHARACTERS:
        out = out[:MOST_CHARACTERS].rpartition(" ")[0]
    return out, first


def docstring(body: Node | None) -> tuple[str, int]:
    """Of Python: the string that begins a body, and its line."""
    for child in () if body is None else body.named_children:
        if child.type == "comment":
            continue
        inner = child.named_children
        if child.type == "expression_statement" and inner and inner[0].type == "string":
            raw = (inner[0].text or b"").decode("utf-8", "replace")
            text, above = paragraph(_QUOTES.sub("", raw))
            is_own = bool(text) and not NOT_A_WORD_OF_ITS_OWN.search(text)
            return (text, child.start_point[0] + 1 + above) if is_own else ("", 0)
        return "", 0
    return "", 0


class CommentLines:
    """The comments of a file that have their lines to themselves, by the line where they end."""

    def __init__(self, data: bytes, comments: Iterable[Node], others: Iterable[Node]) -> None:
        self._ending: dict[int, Node] = {}
        for node in comments:
            before = data[data.rfind(b"\n", 0, node.start_byte) + 1 : node.start_byte]
            if not before.strip():
                self._ending[_last_row(node)] = node
        self._passed: dict[int, int] = {_last_row(n): n.start_point[0] for n in others}

    def above(self, row: int) -> tuple[str, int]:
        """The comment that ends directly above a row (from 0), attributes passed over, and its
        first line (from 1)."""
        while (higher := self._passed.get(row - 1)) is not None and higher < row:
            row = higher
        run: list[Node] = []
        while (node := self._ending.get(row - 1)) is not None and node.start_point[0] < row:
            run.append(node)
            row = node.start_point[0]
        return said(reversed(run))


def _last_row(node: Node) -> int:
    """A comment that holds its line's end ends on the line before."""
    row, column = node.end_point[0], node.end_point[1]
    return row - 1 if column == 0 and row > node.start_point[0] else row


def said(run: Iterable[Node]) -> tuple[str, int]:
    """The first paragraph of a run of comments and its line, without the marks of comments."""
    rows: list[tuple[int, str]] = []
    for node in run:
        text = (node.text or b"").decode("utf-8", "replace")
        for offset, row in enumerate(text.split("\n")):
            rows.append((node.start_point[0] + 1 + offset, _MARKS.sub("", row).strip()))
    rows = _prose(rows)
    if NOT_A_WORD_OF_ITS_OWN.search("\n".join(row for _, row in rows)):
        return "", 0
    text, above = paragraph("\n".join(row for _, row in rows))
    is_said = _SENTENCE.search(text) and not _CODE.search(text)
    return (text, rows[above][0]) if is_said else ("", 0)


def _prose(rows: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """The rows without those for programs, and without tags such as `@param` and what continues
    them."""
    out: list[tuple[int, str]] = []
    is_tag = False
    for number, row in rows:
        is_tag = bool(_TAG.match(row)) or (is_tag and bool(row))
        is_kept = not is_tag and not _FOR_A_TOOL.match(row)
        out.append((number, _BRIEF.sub("", row) if is_kept else ""))
    return out


def heading(root: Node, allowed: frozenset[str]) -> tuple[str, int]:
    """A file's own words: the first run of comments above the code that is not a licence. Nodes of
    the types `allowed` may be between."""
    run: list[Node] = []
    cursor = root.walk()
    more = cursor.goto_first_child()
    while more:
        node = cursor.node
        more = cursor.goto_next_sibling()
        if node is None:
            break
        if "comment" in node.type:
            if run and node.start_point[0] - _last_row(run[-1]) > 1:
                if (doc := said(run))[0]:
                    return doc
                run = []
            run.append(node)
            continue
        if run and node.start_point[0] - _last_row(run[-1]) <= 1 and node.type not in allowed:
            doc = said(run)  # it belongs to what follows, unless that is how the file begins
            return doc if node.type in ("package_clause",) else ("", 0)
        if (doc := said(run))[0]:
            return doc
        run = []
        if node.type not in allowed:
            return "", 0
    return said(run)
