"""JSON as editors allow it: with comments, and with commas before a closing bracket."""

from __future__ import annotations

import re

# A string or a comment that does not end matches too: each piece is read a single time, so that no
# text takes long.
_PIECE = re.compile(r'("(?:[^"\\]|\\.)*"?)|(//[^\n]*|/\*.*?(?:\*/|\Z))|[^"/]+|/', re.DOTALL)
_COMMA = re.compile(r'("(?:[^"\\]|\\.)*"?)|,(?=\s{0,200}[}\]])', re.DOTALL)
_SEEN = re.compile(r"[^\n]")


def without_comments(text: str) -> str:
    """Blanks for comments and for commas before a closing bracket: lines, columns and strings stay
    where they are."""
    return _COMMA.sub(lambda m: m[1] or " ", without_remarks(text))


def without_remarks(text: str) -> str:
    """Blanks for comments alone."""
    return _PIECE.sub(lambda m: _SEEN.sub(" ", m[0]) if m[2] else m[0], text)
