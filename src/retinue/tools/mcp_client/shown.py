"""Foreign texts as people and models are shown them: nothing invisible, nothing that turns the line around."""

from __future__ import annotations

import re
import unicodedata

from retinue.core.text import clean

KEPT = "\n\t"
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
"""Controls, joiners and spaces of no width, marks and overrides of direction, selectors, and the tag characters in
which a whole text can hide."""


def marked_up(text: str) -> str:
    """For people: each hidden character is named, so that nobody approves what they cannot see."""
    return _HIDDEN.sub(lambda m: f"[U+{ord(m[0]):04X}]", _plain(text))


def stripped(text: str) -> str:
    """For models: hidden characters are gone."""
    return _HIDDEN.sub("", _plain(text))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", clean(text)).replace("\r\n", "\n")


def one_line(text: str, most: int = 100) -> str:
    words = " ".join(marked_up(text).split())
    return words if len(words) <= most else words[: most - 1] + "…"
