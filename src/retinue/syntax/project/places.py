"""A place in the tree and the text there. A report prints no statement without one."""

from __future__ import annotations

import re

from msgspec import Struct

LICENCE = re.compile(
    r"copyright|licen[cs]e[ds]?\b|permission is hereby|\bSPDX\b|all rights reserved|"
    r"redistribution and use|without warranty",
    re.IGNORECASE,
)
_END = re.compile(r"(?<![A-Z])(?<!e\.g)(?<!i\.e)(?<!etc)(?<!vs)[.!?](?=\s|$)")
LEAST_SENTENCE = 12


class Place(Struct, frozen=True, order=True, array_like=True):
    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Quote(Struct, frozen=True):
    """The text at a place, with single spaces."""

    text: str
    place: Place


def is_licence(text: str) -> bool:
    return LICENCE.search(text) is not None


def flat(text: str) -> str:
    return " ".join(text.split())


def first_sentence(text: str) -> str:
    """The first sentence of the first paragraph, or all of it when no sentence ends there."""
    paragraph = flat(re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0])
    for end in _END.finditer(paragraph):
        if end.end() >= LEAST_SENTENCE:
            return paragraph[: end.end()]
    return paragraph
