"""HTML read in one pass, in linear time and without recursion, whatever is wrong with it: tokens,
then Markdown.

Scripts, styles and what a page hides are left out: they are not what a person would read.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

from retinue.tools.builtin.markdown import MarkdownWriter

_START = re.compile(r"<(?=[A-Za-z/!?])")
_NAME = re.compile(r"[A-Za-z][^\s/>\x00]*+")
_BETWEEN = re.compile(r"[\s/]*+")
_ATTRIBUTE = re.compile(r"""(=?[^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?""")
_WANTED = {"href", "src", "alt", "title", "hidden", "style", "aria-hidden", "start", "type", "open"}
_LONGEST_NAME = 40

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
_RAW = {"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes", "plaintext"}
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
        "h5 h6 header hr main "
        "nav ol p pre section table ul",
    )
)


_NOTHING: Mapping[str, str] = {}


class Token:
    """`kind` is text, open or close; `value` is the text or the name of the element."""

    __slots__ = ("attributes", "kind", "layout", "value")

    def __init__(self, kind: str, value: str, attributes: Mapping[str, str] = _NOTHING) -> None:
        self.kind, self.value, self.attributes, self.layout = kind, value, attributes, False


@dataclass(slots=True)
class HtmlPage:
    """What was read of a page; `whole` is False when it was too long."""

    text: str
    title: str = ""
    whole: bool = True


def tokens(source: str) -> Iterator[Token]:
    """Each search that fails ends the reading, so no part of the source is gone over twice."""
    at, end = 0, len(source)
    while at < end:
        found = _START.search(source, at)
        start = found.start() if found else end
        if start > at:
            yield Token("text", html.unescape(source[at:start]))
        if found is None:
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
    found = source.find(needle, at)
    return len(source) if found < 0 else found + len(needle)


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


def _is_hidden(token: Token) -> bool:
    attributes = token.attributes
    return token.value in _DROPPED or (bool(attributes) and _hides(attributes))


def _hides(attributes: Mapping[str, str]) -> bool:
    return (
        ("hidden" in attributes and attributes["hidden"].lower() != "until-found")
        or attributes.get("aria-hidden", "").strip().lower() == "true"
        or ("style" in attributes and _HIDING.search(attributes["style"]) is not None)
    )


def _mark_layout(found: list[Token]) -> None:
    """A table with another one in it only arranges the page."""
    open_tables: list[Token] = []
    for token in found:
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
        shown = "div" if name in _OF_TABLES and self._layouts and self._layouts[-1] else name
        if self._hidden_from < 0:
            if _is_hidden(token):
                self._hidden_from = len(self._open)
            else:
                self._writer.open(shown, token.attributes)
        self._open.append((name, shown))
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
        name, shown = self._open.pop()
        self._n_open[name] -= 1
        if name == "table":
            self._layouts.pop()
        if self._hidden_from < 0:
            self._writer.close(shown)
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
    found = list(takewhile(lambda _: not is_over(), tokens(source)))
    _mark_layout(found)
    for token in found:
        if writer.is_full or is_over():
            break
        reader.take(token)
    reader.finish()
    return HtmlPage(writer.finish(), reader.title, not writer.is_full)
