"""What the makers of pages share."""

from __future__ import annotations

import re
from pathlib import Path


def one_line(text: str) -> str:
    """A text as it fits into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def first_sentence(docstring: str | None) -> str:
    """What a docstring says first."""
    text = " ".join((docstring or "").split())
    return re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]


def replaced(path: Path, mark: str, lines: list[str]) -> str:
    """The text of a page with these lines between `<!-- mark -->` and `<!-- end of mark -->`."""
    text = path.read_text(encoding="utf-8")
    head, rest = text.split(f"<!-- {mark} -->\n", 1)
    tail = rest.split(f"<!-- end of {mark} -->", 1)[1]
    body = "\n".join(lines)
    return f"{head}<!-- {mark} -->\n\n{body}\n\n<!-- end of {mark} -->{tail}"
