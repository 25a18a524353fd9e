"""Converts HTML to Markdown in one pass, in linear time and without recursion, however broken it
is.

Scripts, styles and what a page hides are omitted: they are not what a person would read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from retinue.tools.builtin.html_tokens import Token, tokens
from retinue.tools.builtin.markdown_writer import MarkdownWriter

_VOID = {
    *(
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    ),
}
_DROPPED = {
    *(
        "script",
        "style",
        "template",
        "iframe",
        "noembed",
        "noframes",
        "object",
        "canvas",
        "svg",
        "math",
        "audio",
    ),
    *("video", "select", "datalist", "head", "textarea", "dialog"),
}
_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*0(?:\.0*)?\s*(?:;|$|!)|"
    r"font-size\s*:\s*0(?:\.0*)?(?:px|em|rem|pt|%)?\s*(?:;|$|!)",
    re.IGNORECASE,
)
_NONE: frozenset[str] = frozenset()
_P = frozenset({"p"})
_OF_TABLES = frozenset({"table", "tr", "td", "th"})
_CELLS = frozenset({"td", "th"})
_ENDS: dict[str, frozenset[str]] = {
    "li": frozenset({"li", "p"}),
    "dt": frozenset({"dt", "dd", "p"}),
    "dd": frozenset({"dt", "dd", "p"}),
    "td": _CELLS | {"p"},
    "th": _CELLS | {"p"},
    "tr": _CELLS | {"tr", "p"},
    "tbody": _CELLS | {"tr", "thead", "tbody"},
    "tfoot": _CELLS | {"tr", "tbody"},
    "option": frozenset({"option"}),
    "body": frozenset({"head"}),
}
"""Which open elements a new one ends, as far as they are the innermost."""
_BREAKS_P = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote details div dl fieldset figure footer form h1 h2 h3 h4 "
        "h5 h6 header hr main nav ol p pre section table ul",
    )
)


@dataclass(slots=True)
class HtmlPage:
    """What was read of a page; `whole` is False when it was too long."""

    text: str
    title: str = ""
    whole: bool = True


def _is_hidden(token: Token) -> bool:
    attributes = token.attributes
    return token.value in _DROPPED or (bool(attributes) and _hides(attributes))


def _hides(attributes: Mapping[str, str]) -> bool:
    return (
        ("hidden" in attributes and attributes["hidden"].lower() != "until-found")
        or attributes.get("aria-hidden", "").strip().lower() == "true"
        or ("style" in attributes and _HIDING.search(attributes["style"]) is not None)
    )


def _mark_layout(tokens_read: list[Token]) -> None:
    """A table with another one in it only arranges the page."""
    open_tables: list[Token] = []
    for token in tokens_read:
        if token.value == "table" and token.kind == "open":
            if open_tables:
                open_tables[-1].layout = True
            open_tables.append(token)
        elif token.value == "table" and token.kind == "close" and open_tables:
            open_tables.pop()


class _Reader:
    """Keeps the open elements, so that each end tag ends what it should, and passes on what can be
    seen."""

    def __init__(self, writer: MarkdownWriter) -> None:
        self.title = ""
        self._writer = writer
        self._open: list[tuple[str, str]] = []  # each with the name under which it is written
        self._layouts: list[bool] = []
        self._n_open: dict[str, int] = {}
        self._hidden_from = -1
        self._in_title = False

    def take(self, token: Token) -> None:
        if token.kind == "text":
            if self._in_title:
                self.title = self.title or " ".join(token.value.split())[:300]
            elif self._hidden_from < 0:
                self._writer.text(token.value)
        elif token.kind == "open":
            self._begin(token)
        else:
            self._end(token.value)

    def _begin(self, token: Token) -> None:
        name = token.value
        if name == "title" and "svg" not in self._n_open:
            self._in_title = True
            return
        ends = _ENDS.get(name, _P if name in _BREAKS_P else _NONE)
        while ends and self._open and self._open[-1][0] in ends:
            self._pop()
        if name == "base":
            self._writer.rebase(token.attributes.get("href", ""))
        if name in _VOID:
            if self._hidden_from < 0 and not _is_hidden(token):
                self._writer.open(name, token.attributes)
            return
        if name == "table":
            self._layouts.append(token.layout)
        tag = "div" if name in _OF_TABLES and self._layouts and self._layouts[-1] else name
        if self._hidden_from < 0:
            if _is_hidden(token):
                self._hidden_from = len(self._open)
            else:
                self._writer.open(tag, token.attributes)
        self._open.append((name, tag))
        self._n_open[name] = self._n_open.get(name, 0) + 1

    def _end(self, name: str) -> None:
        if name == "title":
            self._in_title = False
            return
        if name == "br":  # as browsers do
            self._writer.open("br", {})
        if not self._n_open.get(name):
            return
        while self._pop() != name:
            pass

    def _pop(self) -> str:
        name, tag = self._open.pop()
        self._n_open[name] -= 1
        if name == "table":
            self._layouts.pop()
        if self._hidden_from < 0:
            self._writer.close(tag)
        elif len(self._open) <= self._hidden_from:
            self._hidden_from = -1
        return name

    def finish(self) -> None:
        while self._open:
            self._pop()


def read(
    source: str,
    base: str,
    *,
    plain: bool = False,
    cap: int = 2_000_000,
    is_over: Callable[[], bool] = lambda: False,
) -> HtmlPage:
    """A page as Markdown, or as plain text; links are made absolute from `base`. `is_over` ends the
    reading early."""
    writer = MarkdownWriter(base, plain=plain, cap=cap)
    reader = _Reader(writer)
    sequence = list(takewhile(lambda _: not is_over(), tokens(source)))
    _mark_layout(sequence)
    for token in sequence:
        if writer.is_full or is_over():
            break
        reader.take(token)
    reader.finish()
    return HtmlPage(writer.finish(), reader.title, not writer.is_full)
