"""Finds the end of a JSON object that a model wrote into its text, and repairs its JSON."""

from __future__ import annotations

import re

MAX_CALL = 1 << 16
MAX_DEPTH = 64
_STRING = {
    '"': re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL),
}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_BARE_QUOTE = re.compile(r'((?<!\\)(?:\\\\)*)"')
_WORD = re.compile(r"[A-Za-z]+")
_WORDS = {"True": "true", "False": "false", "None": "null"}


def extent_of(text: str, at: int, *, may_close: bool) -> tuple[str, int] | None:
    """The object or array at `at` as JSON, and where it ends: without trailing commas, with JSON's
    quotes and words. One that lacks only its last brackets is closed: that changes no value."""
    out: list[str] = []
    closers: list[str] = []
    stop = min(len(text), at + MAX_CALL)
    while at < stop:
        c = text[at]
        if c in "\"'":
            string = _STRING[c].match(text, at, stop)
            if string is None:
                return None
            out.append(_requoted(string[1]))
            at = string.end()
            continue
        if c in "{[":
            closers.append("}" if c == "{" else "]")
            if len(closers) > MAX_DEPTH:
                return None
        elif c in "}]":
            if c != closers[-1]:
                return None
            _drop_comma(out)
            closers.pop()
            if not closers:
                return "".join([*out, c]), at + 1
        elif c in "<`":
            break
        word = _WORD.match(text, at, stop)
        out.append(_WORDS.get(word[0], word[0]) if word else c)
        at += len(word[0]) if word else 1
    if not may_close or (at == stop and stop < len(text)):
        return None
    _drop_comma(out)
    return "".join([*out, *reversed(closers)]), at


def _requoted(inside: str) -> str:
    """A string in JSON's quotes. A backslash that escapes nothing was meant as one."""
    inside = _ESCAPE.sub(_escape, inside)
    return '"' + _BARE_QUOTE.sub(r"\1\"", inside) + '"'


def _escape(match: re.Match[str]) -> str:
    if match[1] in '"\\/bfnrtu':
        return match[0]
    return "'" if match[1] == "'" else "\\" + match[0]


def _drop_comma(out: list[str]) -> None:
    while out and out[-1].isspace():
        out.pop()
    if out and out[-1] == ",":
        out.pop()
