"""Writes Markdown as the elements of a page open and close: a buffer for the current line, stacks
for nested elements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urljoin

DEEPEST = 12
"""Lists and quotations are indented so far and no further."""
LONGEST_LINK = 2_000

_BR, _MARK = "\x00", "\x01"
_INLINE = {
    "strong": "**",
    "b": "**",
    "em": "*",
    "i": "*",
    "code": "`",
    "kbd": "`",
    "samp": "`",
    "del": "~~",
    "s": "~~",
}
_BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside body details dd div dl dt fieldset figcaption figure footer form "
        "header hgroup html "
        "legend main nav p section summary caption tbody thead tfoot center label button",
    )
)
_BAD = re.compile(r"[\x00-\x20\x7f]")


class MarkdownWriter:
    """`open`, `text` and `close` in the order of the page; `finish` gives the whole. Nesting must
    be proper."""

    def __init__(self, base: str, *, plain: bool, cap: int) -> None:
        self._base = base
        self._plain = plain
        self._left = cap
        self._out: list[str] = []
        self._line: list[str] = []
        self._prefixes: list[str] = []
        self._marks = dict.fromkeys(_INLINE.values(), 0)
        self._marker = ""
        self._gap = False
        self._last_prefix = ""
        self._lists: list[int | None] = []
        self._link: tuple[int, str] | None = None
        self._pre: list[str] | None = None
        self._n_headings = 0
        self._row: list[str] | None = None
        self._n_rows: list[int] = []
        self._in_cell = 0

    @property
    def is_full(self) -> bool:
        return self._left < 0

    def rebase(self, href: str) -> None:
        self._base = self._absolute(href) or self._base

    def text(self, text: str) -> None:
        text = text.replace(_BR, "").replace(_MARK, "")
        (self._line if self._pre is None else self._pre).append(text)

    def open(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in _BLOCKS:
            self._boundary()
        elif name == "br":
            self.text("\n") if self._pre is not None else self._line.append(_BR)
        elif name == "hr":
            self._block()
            self._write("---")
        elif name == "img":
            self._image(attributes)
        elif name in _INLINE:
            self._begin_mark(_INLINE[name])
        elif name == "a":
            if self._link is None and self._pre is None:
                self._link = (len(self._line), self._absolute(attributes.get("href", "")))
        elif name == "pre":
            if self._pre is None:
                self._boundary()
                self._pre = []
        elif name in ("ul", "ol", "menu"):
            self._boundary()
            self._gap = not self._lists
            start = attributes.get("start", "")
            first = int(start) if start.isdigit() and len(start) < 9 else 1
            self._lists.append(first if name == "ol" else None)
        elif name == "li":
            self._item()
        elif name == "blockquote":
            self._boundary()
            self._prefixes.append("> ")
        elif name == "table":
            self._boundary()
            self._n_rows.append(0)
        elif name == "tr" and self._n_rows:
            self._boundary()
            self._row = []
        elif name in ("td", "th"):
            self._boundary()
            self._in_cell += 1
        elif len(name) == 2 and name[0] == "h" and name[1] in "123456":
            self._boundary()
            self._n_headings += 1

    def close(self, name: str) -> None:
        if name in _BLOCKS:
            self._boundary()
        elif name in _INLINE:
            self._end_mark(_INLINE[name])
        elif name == "a":
            self._end_link()
        elif name == "pre":
            self._end_pre()
        elif name in ("ul", "ol", "menu"):
            self._boundary()
            if self._lists:
                self._lists.pop()
        elif name == "li":
            self._boundary()
            self._marker = ""
            if self._prefixes:
                self._prefixes.pop()
        elif name == "blockquote":
            self._boundary()
            if self._prefixes:
                self._prefixes.pop()
        elif name == "table":
            self._boundary()
            if self._n_rows:
                self._n_rows.pop()
        elif name == "tr":
            self._end_row()
        elif name in ("td", "th"):
            self._end_cell()
        elif len(name) == 2 and name[0] == "h" and name[1] in "123456":
            self._end_heading(int(name[1]))

    def finish(self) -> str:
        self._block()
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(self._out))
        return text.strip("\n")

    def _boundary(self) -> None:
        """A block begins or ends: what is in a link, a heading or a cell only gets a space."""
        if self._pre is not None:
            return
        if self._link is not None or self._n_headings or self._in_cell:
            self._line.append(" ")
        else:
            self._block()

    def _block(self) -> None:
        self._write(self._taken())

    def _taken(self) -> str:
        """The line at hand, its white space made one blank, its breaks kept."""
        if not self._line:
            return ""
        self._end_link()
        line, opened = (
            self._line,
            [] if self._plain else [_MARK + sign for sign, n in self._marks.items() if n],
        )
        self._line = opened[:]  # what is emphasised here is so in the next block too
        if not _has_words(line):
            return ""
        text = "".join([*line, *reversed(opened)]).replace(_MARK, "")
        parts = [" ".join(part.split()) for part in text.split(_BR)]
        return "\n".join(parts).strip("\n")

    def _write(self, text: str, *, tight: bool = False) -> None:
        if not text or self._left < 0:
            return
        prefix = first = "".join(self._prefixes[:DEEPEST])
        if self._marker:
            first = prefix[: len(prefix) - len(self._marker)] + self._marker
            tight = not self._gap
        if self._out and not tight:
            self._out.append(_shared(self._last_prefix, prefix).rstrip())
        self._marker, self._gap, self._last_prefix = "", False, prefix
        lines = text.split("\n")
        self._left -= len(text) + len(lines) * (len(prefix) + 1)
        self._out.append(first + lines[0])
        self._out += [prefix + line for line in lines[1:]]

    def _item(self) -> None:
        self._boundary()
        if self._in_cell or self._link is not None or self._n_headings:
            self._line.append("- ")
            self._prefixes.append("")
            return
        number = self._lists[-1] if self._lists else None
        marker = "- "
        if number is not None:
            marker = f"{number}. "
            self._lists[-1] = number + 1
        self._prefixes.append(" " * len(marker))
        self._marker = marker if len(self._prefixes) <= DEEPEST else ""

    def _begin_mark(self, sign: str) -> None:
        """Emphasis inside the same emphasis adds nothing."""
        self._marks[sign] += 1
        if self._marks[sign] == 1 and self._pre is None and not self._plain:
            self._line.append(_MARK + sign)

    def _end_mark(self, sign: str) -> None:
        self._marks[sign] -= 1
        if not self._marks[sign] and self._pre is None and not self._plain:
            if self._line and self._line[-1] == _MARK + sign:
                self._line.pop()
            else:
                self._line.append(_MARK + sign)

    def _end_link(self) -> None:
        if self._link is None:
            return
        start, url = self._link
        self._link = None
        if _has_words(self._line[start:]):
            text = " ".join("".join(self._line[start:]).replace(_BR, " ").split())
            bare = self._plain or not url
            lead = " " if self._line[start][:1].isspace() else ""
            self._line[start:] = [lead + (text if bare else f"[{text}]({url})")]

    def _image(self, attributes: Mapping[str, str]) -> None:
        alt = " ".join(attributes.get("alt", "").split())[:500]
        url = self._absolute(attributes.get("src", ""))
        if alt and self._pre is None:
            self._line.append(
                f"![{alt}]({url})" if url and not self._plain and self._link is None else alt
            )

    def _end_pre(self) -> None:
        if self._pre is None:
            return
        text, self._pre = "".join(self._pre).strip("\n"), None
        if self._link is not None or self._n_headings or self._in_cell:
            self._line.append(" ".join(text.split()))
        elif text.strip():
            longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
            fence = "`" * (longest + 1)
            self._write(text if self._plain else f"{fence}\n{text}\n{fence}")

    def _end_heading(self, level: int) -> None:
        self._n_headings = max(0, self._n_headings - 1)
        if self._n_headings or self._link is not None or self._in_cell or self._pre is not None:
            self._boundary()
            return
        text = self._taken().replace("\n", " ")
        self._write(text if self._plain or not text else f"{'#' * level} {text}")

    def _end_cell(self) -> None:
        self._in_cell = max(0, self._in_cell - 1)
        if self._row is not None and not self._in_cell:
            text = self._taken().replace("\n", " ")
            self._row.append(text if self._plain else text.replace("|", "\\|"))
        else:
            self._boundary()

    def _end_row(self) -> None:
        row, self._row = self._row, None
        if not row or not self._n_rows or not any(row):
            return
        first = self._n_rows[-1] == 0
        self._n_rows[-1] += 1
        if self._plain:
            self._write("\t".join(row), tight=not first)
        else:
            line = f"| {' | '.join(row)} |"
            self._write(f"{line}\n|{' --- |' * len(row)}" if first else line, tight=not first)

    def _absolute(self, href: str) -> str:
        """An address as it can be fetched, or "" when it leads nowhere that a reader could go."""
        href = href.strip()
        if not href or len(href) > LONGEST_LINK or href.startswith("#"):
            return ""
        try:
            url = urljoin(self._base, href)
        except ValueError:
            return ""
        if not url.lower().startswith(("http://", "https://", "mailto:")):
            return ""
        return _BAD.sub("", url).replace("(", "%28").replace(")", "%29")


def _has_words(line: list[str]) -> bool:
    return any(part.strip(f" \t\r\n{_BR}") for part in line if not part.startswith(_MARK))


def _shared(a: str, b: str) -> str:
    """The beginning that two prefixes have in common."""
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return a[:n]
