"""Reads parameter descriptions from docstrings in three styles: Google (`Args:`), NumPy (underlined
`Parameters`) and Sphinx (`:param name:`)."""

from __future__ import annotations

import re
from typing import NamedTuple

_GOOGLE = re.compile(r"(Args|Arguments|Parameters|Params):\s*$")
_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY = re.compile(r"(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_SPHINX = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")
_FIELD = re.compile(r":(?:type|rtype|returns?|raises?)\b[^:]*:")


class Docstring(NamedTuple):
    """The text without its list of parameters, and what the list says of each."""

    text: str
    parameters: dict[str, str]


def read_docstring(doc: str) -> Docstring:
    """`doc` has its indentation removed already."""
    rest: list[str] = []
    texts: dict[str, str] = {}
    lines = doc.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if _GOOGLE.match(line):
            at = _google(lines, at + 1, texts)
        elif line.strip() == "Parameters" and _is_rule(lines, at + 1):
            at = _numpy(lines, at + 2, texts)
        elif (match := _SPHINX.match(line)) is not None:
            at = _continued(lines, at + 1, match[2], match[1], texts)
        elif _FIELD.match(line) and line.startswith((":type", ":rtype")):
            at += 1
        else:
            rest.append(line)
            at += 1
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(rest)).strip()
    return Docstring(text, texts)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_rule(lines: list[str], at: int) -> bool:
    return at < len(lines) and re.fullmatch(r"-{3,}\s*", lines[at]) is not None


def _google(lines: list[str], at: int, texts: dict[str, str]) -> int:
    """Entries are indented below the heading, their further lines more than they are."""
    first = next((line for line in lines[at:] if line.strip()), "")
    depth = _indent(first)
    while depth and at < len(lines):
        line = lines[at]
        if line.strip() and _indent(line) < depth:
            break
        match = _ITEM.match(line.strip()) if _indent(line) == depth else None
        if match is None:
            at += 1
            continue
        at = _continued(lines, at + 1, match[2], match[1], texts, depth)
    return at


def _numpy(lines: list[str], at: int, texts: dict[str, str]) -> int:
    """Names are at the margin, their texts indented; a line that is underlined begins the next
    section."""
    while at < len(lines) and not _is_rule(lines, at + 1):
        line = lines[at]
        match = _NUMPY.match(line) if line and not line[0].isspace() else None
        if match is None and line.strip():
            break
        at += 1
        if match is not None:
            start = at
            for name in re.split(r"\s*,\s*", match[1]):
                at = _continued(lines, start, "", name, texts)
    return at


def _continued(
    lines: list[str], at: int, text: str, name: str, texts: dict[str, str], depth: int = 0
) -> int:
    """Join the lines that are indented more than `depth`."""
    words = [text]
    while at < len(lines) and (_indent(lines[at]) > depth or not lines[at].strip()):
        if not lines[at].strip() and not _goes_on(lines, at, depth):
            break
        words.append(lines[at].strip())
        at += 1
    texts[name] = " ".join(filter(None, words))
    return at


def _goes_on(lines: list[str], at: int, depth: int) -> bool:
    following = next((line for line in lines[at:] if line.strip()), "")
    return _indent(following) > depth
