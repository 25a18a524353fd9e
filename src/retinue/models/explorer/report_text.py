"""Texts for people: one line out of many, cells of tables, sizes, lists that say how much they
leave out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.formats.safe_text import one_line


def sentence(text: str, cap: int = 160) -> str:
    """The first sentence of a text, or its beginning."""
    flat = one_line(text, 1_000)
    end = re.search(r"(?<![A-Z])(?<!e\.g)(?<!i\.e)[.!?](?=\s|$)", flat)
    return one_line(flat[: end.end()] if end and end.end() >= 12 else flat, cap)


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def kib(n: int) -> str:
    if n < 1024:
        return f"{n} B"
    return f"{n / 1024:.0f} KiB" if n < 1 << 20 else f"{n / (1 << 20):.1f} MiB"


def some(items: Sequence[str], most: int) -> str:
    """A list that says how many of it are left out."""
    shown = ", ".join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


def plural(n: int, noun: str) -> str:
    return (
        f"{n} {noun}" if n == 1 else f"{n} {noun[:-1]}ies" if noun.endswith("y") else f"{n} {noun}s"
    )


def at(path: str, line: int) -> str:
    """A place; without a line for what has none, such as a file that is gone."""
    return f"{path}:{line}" if line else path
