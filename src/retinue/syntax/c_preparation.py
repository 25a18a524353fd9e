"""Prepares C, C++ and C# for a parser without a preprocessor, and Kotlin for one that needs
semicolons. Nothing moves: what is taken out becomes spaces, so that every place stays right."""

from __future__ import annotations

import re
from collections.abc import Iterable

ATTRIBUTES = {b"__attribute__": True, b"__declspec": True}
"""Names that expand to nothing but attributes, and whether they take arguments."""
DEPTH = 3
MOST_MACROS = 20_000
_DEFINE = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)\n]*\))?((?:[^\n\\]|\\.|\\\n)*)", re.MULTILINE
)
_GROUP = rb"[ \t]*\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)"
_COMMENT = re.compile(rb"/\*.*?\*/|//[^\n]*|\\\n", re.DOTALL)
_DIRECTIVE = rb"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*"
_CONDITION = re.compile(rb"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b([ \t]+0\b)?")


def spaces(text: bytes) -> bytes:
    return re.sub(rb"[^\n]", b" ", text)


def attribute_macros(files: Iterable[bytes]) -> dict[bytes, bool]:
    """Macros of a tree that expand to nothing but attributes: they hide the function after them
    from a parser."""
    macros: list[tuple[bytes, bool, bytes]] = []
    for data in files:
        if b"define" in data:
            macros += [
                (name, bool(arguments), _COMMENT.sub(b"", value).strip())
                for name, arguments, value in _DEFINE.findall(data)
                if len(value) < 400
            ]
    attributes = dict(ATTRIBUTES)
    for _ in range(DEPTH):
        words = b"|".join(n + (_GROUP if a else rb"\b") for n, a in sorted(attributes.items()))
        only = re.compile(rb"(?:\s*\b(?:" + words + rb"))+\s*")
        attributes |= {
            n: a for n, a, v in macros[:MOST_MACROS] if n not in attributes and only.fullmatch(v)
        }
    return attributes


def prepared(data: bytes, branches: dict[bytes, bool]) -> bytes:
    """Without the bodies of `#if 0`, comments inside `#define`, and attributes."""
    if b"#" in data:
        data = _without_dead(data)
        data = _DEFINE.sub(_without_comments, data)
    for takes in (True, False):
        names = [n for n, a in branches.items() if a is takes and n in data]
        if names:
            tail = _GROUP if takes else b""
            pattern = rb"\b(?:" + b"|".join(sorted(names, reverse=True)) + rb")\b" + tail
            data = re.sub(_DIRECTIVE + b"|" + pattern, _blank_use, data, flags=re.MULTILINE)
    return data


def _blank_use(match: re.Match[bytes]) -> bytes:
    return match[0] if match[0].lstrip().startswith(b"#") else spaces(match[0])


def _without_comments(match: re.Match[bytes]) -> bytes:
    """A backslash at a line's end stays, else the macro would end there."""
    return re.sub(
        rb"/\*.*?\*/", lambda c: re.sub(rb"[^\n\\]", b" ", c[0]), match[0], flags=re.DOTALL
    )


def _without_dead(data: bytes) -> bytes:
    """The lines between `#if 0` and what ends it."""
    if not re.search(rb"^[ \t]*#[ \t]*if[ \t]+0\b", data, re.MULTILINE):
        return data
    out: list[bytes] = []
    dead = 0
    for line in data.split(b"\n"):
        word = _CONDITION.match(line)
        if dead:
            if word and word[1].startswith(b"if"):
                dead += 1
            elif word and (word[1] == b"endif" or dead == 1):
                dead -= 1
            if dead:
                line = spaces(line)
        elif word and word[1] == b"if" and word[2]:
            dead = 1
        out.append(line)
    return b"\n".join(out)


def one_branch(data: bytes) -> tuple[bytes, set[int]]:
    """For a file that has errors: lines of `#if` and every `#else` branch become spaces. Also the
    numbers of the lines of code that were lost."""
    out: list[bytes] = []
    depth: list[bool] = []
    line_numbers: set[int] = set()
    for number, line in enumerate(data.split(b"\n"), 1):
        word = _CONDITION.match(line)
        if word and word[1].startswith(b"if"):
            depth.append(False)
        elif word and depth and word[1] == b"endif":
            depth.pop()
        elif word and depth:
            depth[-1] = True
        if word or any(depth):
            if not word:
                line_numbers.add(number)
            line = b" " * len(line)
        out.append(line)
    return b"\n".join(out), line_numbers


def closed_lines(data: bytes) -> tuple[bytes, set[int]]:
    """Kotlin: the grammar wants a line's end or a semicolon before a brace that closes."""
    return re.sub(rb"(?<=[\w)\]}\"]) (?=\}[ \t]*(?:$|\}|\)))", b";", data, flags=re.M), set()
