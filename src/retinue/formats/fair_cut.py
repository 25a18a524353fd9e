"""Several texts where there is not room for all of them: short ones keep what they need, the others
share the rest equally. No character is cut in two, nor a letter from its combining marks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

LONGEST_CLUSTER = 32
"""More code points than one visible character has; a longer tower of marks may be cut."""
_ZWJ = "\u200d"
_JOINED = (range(0x1F3FB, 0x1F400), range(0xE0020, 0xE0080), range(0x1160, 0x1200))
"""Skin tones, tags and the second half of a Korean syllable: no marks by their category, but
nothing by themselves."""
_FLAGS = range(0x1F1E6, 0x1F200)
NOTE = re.compile(
    r"\n\[(?:truncated|cut): (?P<hidden>\d+) of (?P<total>\d+) characters (?:hidden|are not shown)"
    r"(?:; (?:full text|the whole is) in (?:artifact )?(?P<artifact>[^\]\n]*))?\]\Z"
)
"""The note that `missing` writes. Conversations that were stored earlier have its older form."""


def fair(sizes: Sequence[int], room: int) -> list[int]:
    """What each of these sizes gets of the room: never more than its size, and each that gets less
    than its size gets as much as any other."""
    out, rest = [0] * len(sizes), max(0, room)
    by_size = sorted(range(len(sizes)), key=sizes.__getitem__)
    for n, i in enumerate(by_size):
        out[i] = min(sizes[i], rest // (len(sizes) - n))
        rest -= out[i]
    return out


def boundary(text: str, at: int) -> int:
    """The last place up to `at` where a text can be cut without taking a character apart."""
    at = max(0, at)
    if at >= len(text):
        return len(text)
    for k in range(at, max(0, at - LONGEST_CLUSTER), -1):
        if not _holds_together(text, k):
            return k
    return at if at > LONGEST_CLUSTER else 0


def _holds_together(text: str, k: int) -> bool:
    """Whether the parts before and after `k` are one character."""
    before, behind = text[k - 1], text[k]
    if behind.isascii():
        return before == "\r" and behind == "\n"
    if behind == _ZWJ or before == _ZWJ or unicodedata.category(behind).startswith("M"):
        return True
    code = ord(behind)
    if code in _FLAGS:
        n = 0
        while n < k and ord(text[k - 1 - n]) in _FLAGS:
            n += 1
        return n % 2 == 1
    return any(code in joined for joined in _JOINED)


def missing(n: int, total: int, where: str = "") -> str:
    """The word at a cut: how much is not shown, and where the whole is."""
    tail = f"; full text in {where}" if where else ""
    return f"\n[truncated: {n} of {total} characters hidden{tail}]"


def missing_in(text: str) -> Callable[[int, int, str], str]:
    """The word at a cut of a text that may have been cut before: what was missing then is counted
    too."""
    before = NOTE.search(text[-200:])
    if before is None or len(before["hidden"]) > 12:
        return missing
    n_shown = len(text) - len(before[0])
    whole = n_shown + int(before["hidden"])

    def note(n: int, total: int, where: str) -> str:
        return missing(whole - min(total - n, n_shown), whole, where)

    return note


def same(text: str) -> str:
    return text


def cut(
    text: str,
    room: int,
    where: str = "",
    size: Callable[[str], int] = len,
    seal: Callable[[str], str] = same,
    note: Callable[[int, int, str], str] = missing,
) -> str:
    """As much of a text as there is room for, the word about the rest included. `size` is what a
    text takes where it will be put, and never less than its length; `seal` closes what the cut
    leaves open. Of a text that is cut the word is there in any case."""
    if size(seal(text)) <= room:
        return seal(text)
    rest = room - size(note(len(text), len(text), where))
    low, high = 0, max(0, min(len(text), rest))
    while low < high:
        k = (low + high + 1) // 2
        low, high = (k, high) if size(text[:k]) <= rest else (low, k - 1)
    k = boundary(text, low)
    while k and (over := size(seal(text[:k])) - rest) > 0:
        k = boundary(text, max(0, k - over))
    return seal(text[:k]) + note(len(text) - k, len(text), where)


def clip(text: str, cap: int, where: str = "") -> str:
    """At most `cap` characters of `text`; a cut says how much is missing and which artifact holds
    the whole."""
    if len(text) <= cap:
        return text
    k = boundary(text, cap)
    return text[:k] + missing(len(text) - k, len(text), f"artifact {where}" if where else "")


def whole_characters(data: bytes) -> bytes:
    """Without the half of a character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            size = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return data[:-back] if size > back else data
    return data
