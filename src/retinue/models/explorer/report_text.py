"""Text for reports: numbers, lists that say how much they omit, lines of 100 columns that never
break inside a place."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from retinue.formats.safe_text import one_line
from retinue.syntax.project.places import Place, Quote, first_sentence

WIDTH = 100
_MORE = re.compile(r" (?:of|in|marked|named test|that)\b|,")


def plural(n: int, noun: str) -> str:
    """`1 file`, `2 copies`, `3 files of packaging`."""
    if n == 1:
        return f"1 {noun}"
    match = _MORE.search(noun)
    head, rest = (noun[: match.start()], noun[match.start() :]) if match else (noun, "")
    if head.endswith("y") and head[-2:-1] not in "aeiou":
        return f"{n:,} {head[:-1]}ies{rest}"
    return f"{n:,} {head}{'es' if head.endswith('s') else 's'}{rest}"


def some(items: Sequence[str], most: int, noun: str = "") -> str:
    """A list that says how many entries are omitted."""
    if len(items) <= most:
        return ", ".join(items)
    n_more = len(items) - most
    more = plural(n_more, f"more {noun}") if noun else f"{n_more:,} more"
    return f"{', '.join(items[:most])} and {more}"


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def wrapped(text: str, first: str = "", rest: str = "") -> str:
    """A paragraph in lines; words, and so places, stay whole."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def bullets(items: Iterable[str]) -> str:
    return "\n".join(wrapped(item, "- ", "  ") for item in items)


def cell(text: str) -> str:
    """A text that is safe in a table."""
    return one_line(text, 2_000).replace("|", "\\|")


def quoted(quote: Quote) -> str:
    """A text and its place."""
    return f'"{one_line(quote.text, 400)}" {spot(quote.place)}'


def spot(place: Place) -> str:
    """A place on one line, whatever characters its path has."""
    return at(one_line(place.path, 400), place.line)


def at(path: str, line: int) -> str:
    """A place; without a line for what has none, such as a file that is gone."""
    return f"{path}:{line}" if line else path


def sentence(text: str, cap: int = 160) -> str:
    """The first sentence of a text, or its beginning."""
    return one_line(first_sentence(text), cap)
