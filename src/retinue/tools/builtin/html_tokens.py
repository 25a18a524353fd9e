"""Splits HTML into tokens."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping

_START = re.compile(r"<(?=[A-Za-z/!?])")
_NAME = re.compile(r"[A-Za-z][^\s/>\x00]*+")
_BETWEEN = re.compile(r"[\s/]*+")
_ATTRIBUTE = re.compile(r"""(=?[^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?""")
_WANTED = {"href", "src", "alt", "title", "hidden", "style", "aria-hidden", "start", "type", "open"}
_LONGEST_NAME = 40
_RAW = {"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "plaintext"}
_NOTHING: Mapping[str, str] = {}


class Token:
    """`kind` is text, open or close; `value` is the text or the name of the element."""

    __slots__ = ("attributes", "kind", "layout", "value")

    def __init__(self, kind: str, value: str, attributes: Mapping[str, str] = _NOTHING) -> None:
        self.kind = kind
        self.value = value
        self.attributes = attributes
        self.layout = False


def tokens(source: str) -> Iterator[Token]:
    """Each search that fails ends the reading, so no part of the source is gone over twice."""
    at, end = 0, len(source)
    while at < end:
        match = _START.search(source, at)
        start = match.start() if match else end
        if start > at:
            yield Token("text", html.unescape(source[at:start]))
        if match is None:
            return
        after = source[start + 1]
        if source.startswith("<!--", start):
            at = _behind(source, "-->", start + 4)
        elif after in "!?":
            at = _behind(source, ">", start + 2)
        elif after == "/":
            name = _NAME.match(source, start + 2)
            if name:
                yield Token("close", name[0][:_LONGEST_NAME].lower())
            at = _behind(source, ">", start + 2)
        elif name := _NAME.match(source, start + 1):
            token, at = _tag(source, name)
            if at > end:
                return
            yield token
            if token.value in _RAW:
                text, at = _raw(source, token.value, at)
                yield Token(
                    "text", html.unescape(text) if token.value in ("title", "textarea") else text
                )
                yield Token("close", token.value)


def _behind(source: str, needle: str, at: int) -> int:
    position = source.find(needle, at)
    return len(source) if position < 0 else position + len(needle)


def _tag(source: str, name: re.Match[str]) -> tuple[Token, int]:
    """The tag that begins with `name`, and where it ends; behind the end of the source when it does
    not."""
    attributes: dict[str, str] = {}
    token = Token("open", name[0][:_LONGEST_NAME].lower(), attributes)
    at = name.end()
    if source.startswith(">", at):
        return token, at + 1
    while True:
        between = _BETWEEN.match(source, at)
        at = between.end() if between else at
        if at >= len(source):
            return token, len(source) + 1
        if source[at] == ">":
            return token, at + 1
        match = _ATTRIBUTE.match(source, at)
        assert match is not None  # what is neither blank, slash nor end begins an attribute
        key = match[1].lower() if len(match[1]) <= _LONGEST_NAME else ""
        if key in _WANTED:
            attributes.setdefault(key, html.unescape(match[2] or match[3] or match[4] or ""))
        at = match.end()


def _raw(source: str, name: str, at: int) -> tuple[str, int]:
    """The content of an element in which tags mean nothing."""
    close = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, at)
    if close is None or name == "plaintext":
        return source[at:], len(source)
    return source[at : close.start()], _behind(source, ">", close.end())
