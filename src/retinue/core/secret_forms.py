"""The encoded forms of a secret. A form is a row of units, each the spellings of one character, in
UTF-8.

What prints text may put invisible bytes between its characters: colours, NUL bytes (that is
UTF-16), the line breaks of wrapped base64. These are fillers, and no part of a form."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right

from retinue.core.secret_spellings import ALPHABET

# A break counts only behind a line that is as long as wrapped base64 makes them: else every line
# end would be one.
_BREAK = (
    rb"(?<=[A-Za-z0-9+/]{56}\r)\n[ \t]*|(?<=[A-Za-z0-9+/]{56}\n)[ "
    rb"\t]*|(?<=[A-Za-z0-9+/]{56}\\)n[ \t]*"
)
_STRING = rb"[^\x00-\x1f\\\x7f\x9c]{0,4096}(?:\x07|\\u0007|(?:\x1b|\\u001[bB])\\{1,2}|\xc2\x9c)"
_CODE = rb"[0-?]*[ -/]*[@-~]"
_AFTER_ESC = rb"(?:\[" + _CODE + rb"|[\]PX^_]" + _STRING + rb"|[\]PX^_]|[ -/]*[0-Z^-~])"
# As `core.display` takes them away: whole sequences, then invisible characters. A lone byte 0x9b is
# CSI on old terminals, and the end of a letter in UTF-8. The first byte comes before everything
# else, which makes the search many times as fast.
_UNBROKEN = (
    rb"(?<=\x1b)"
    + _AFTER_ESC
    + rb"|(?<=[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f])[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]*"
    rb"|(?<=\\)u(?:001[bB]"
    + _AFTER_ESC
    + rb"|009[bB]"
    + _CODE
    + rb"|00(?:0[0-8eEfF]|1[0-9acdefACDEF]|7[fF]|[aA][dD])"
    rb"|20(?:0[b-fB-F]|2[a-eA-E]|6[0-9a-fA-F])|[fF][eE](?:0[0-9a-fA-F]|[fF]{2})|[dD][bB]40\\u[dD][c-dC-D][0-9a-fA-F]{2})"
    rb"|(?<=\xc2)(?:\x9b"
    + _CODE
    + rb"|[\x90\x98\x9d-\x9f]"
    + _STRING
    + rb"|[\x80-\x84\x86-\x8f\x91-\x9f\xad])"
    rb"|(?<=\xe2)(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xaf])|(?<=\xef)(?:\xbb\xbf|\xb8[\x80-\x8f])"
    rb"|(?<=\xf3)\xa0[\x80-\x87][\x80-\xbf]|(?<=\xcd)\x8f|(?<=\x9b)(?<![\x80-\xff]\x9b)" + _CODE
)
_FILLERS = re.compile(
    rb"[\x00-\x08\x0e-\x1f\x7f\\\xc2\xcd\xe2\xef\xf3\x9b\r\n](?:"
    + _UNBROKEN
    + rb"|"
    + _BREAK
    + rb")"
)
_WITHIN = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f\\\xc2\xcd\xe2\xef\xf3\x9b](?:" + _UNBROKEN + rb")")
_CONTROLS = tuple(bytes([c]) for c in (*range(32), 127) if c not in (9, 10, 11, 12, 13))
_UNSEEN = (
    (b"\x9b", re.compile(rb"(?<![\x80-\xff])\x9b")),
    (b"\xc2", re.compile(rb"\xc2[\x80-\x84\x86-\x9f\xad]")),
    (b"\xe2", re.compile(rb"\xe2(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xaf])")),
    (b"\xef", re.compile(rb"\xef(?:\xbb\xbf|\xb8[\x80-\x8f])")),
    (b"\xf3", re.compile(rb"\xf3\xa0[\x80-\x87]")),
    (b"\xcd", re.compile(rb"\xcd\x8f")),
)
"""What to look for when there is such a byte: one byte is found many times as fast as two."""
WIDTH = 400
"""The bytes before it that decide what a filler is."""
_OPEN = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x00-\x1f\\\x7f\x9c]{0,4096}\x1b?|[ -/]*)?"
    rb"|(?:\xc2\x9b|(?<![\x80-\xff])\x9b)[0-?]*[ "
    rb"-/]*|\xc2[\x90\x98\x9d-\x9f][^\x00-\x1f\\\x7f\x9c]{0,4096}"
    rb"|\xc2|\xe2[\x80\x81]?|\xef[\xb8\xbb]?|\xf3(?:\xa0[\x80-\x87]?)?|\xcd|\r)\Z"
)
"""The beginning of a filler at the end of what has come so far."""
_LINE_END = re.compile(rb"\r\n|\n|\\n")
_RUN = re.compile(rb"[A-Za-z0-9+/]+\Z")
_SHAPES = re.compile(rb"[A-Za-z0-9^]+|[ \t]+|.", re.DOTALL)
MOST_PREFIX = 200
_LINES = bytes(
    {**dict.fromkeys("\r\n\\", 10), **dict.fromkeys(ALPHABET, 120)}.get(chr(i), 32)
    for i in range(256)
)
_FULL_LINE = b"x" * 56 + b"\n"
_FULL = re.compile(rb"[A-Za-z0-9+/]{56}")


class Squeezed:
    """Data from `start` on without fillers, and without the beginning of one at its end. `is_open`:
    more will come, and may make one of what is there."""

    def __init__(self, data: bytes, start: int = 0, *, is_open: bool = False) -> None:
        opened = _OPEN.search(data, max(start, len(data) - 4200))
        stop = len(data) if opened is None else opened.start()
        parts: list[bytes] = []
        self._places = [(0, start)]  # the position of a part in this and in the data
        size, at = 0, start
        while (filler := _FILLERS.search(data, at, stop)) is not None:
            at = filler.end()
            if (line_end := _LINE_END.match(filler[0])) is not None:
                before = _before(data, filler.start())
                again = (
                    _alike(before).match(data, filler.start() + line_end.end(), stop)
                    if before
                    else None
                )
                if again is not None:
                    at = again.end()
                elif before and is_open and stop - at <= len(before) + 8:
                    stop = filler.start()
                    break
            parts.append(data[start : filler.start()])
            size, start = size + filler.start() - start, at
            self._places.append((size, start))
        self.data = b"".join([*parts, data[start:stop]])

    def place(self, at: int) -> int:
        """The position of a byte of it in the data."""
        here, there = self._places[bisect_right(self._places, at, key=lambda place: place[0]) - 1]
        return there + at - here


def bare(data: bytes) -> bytes:
    """What `Squeezed` makes of data, without the places: for a first look, and many times as
    fast."""
    if is_wrapped(data):
        return Squeezed(data).data
    opened = _OPEN.search(data, max(0, len(data) - 4200))
    return _WITHIN.sub(b"", data if opened is None else data[: opened.start()])


def _before(data: bytes, end: int) -> bytes:
    """What comes before the base64 in a line: the sign of a diff, a number, a name, the columns of
    `git blame`."""
    least = max(0, end - WIDTH)
    start = max(data.rfind(b"\n", least, end) + 1, least)
    if data[end : end + 1] == b"\\":
        start = max(start, data.rfind(b"\\n", least, end) + 2, data.rfind(b'"', least, end) + 1)
    run = _RUN.search(data, start, end)
    assert run is not None
    # A line of base64 has a multiple of four letters: one more is the plus of a diff.
    return data[start : run.start() + (len(run[0]) % 4 == 1 and run[0][:1] == b"+")]


@functools.lru_cache(64)
def _alike(prefix: bytes) -> re.Pattern[bytes]:
    """Prefixes of the same shape: other words and numbers, as many, with the same signs between
    them."""
    if len(prefix) > MOST_PREFIX:
        return re.compile(rb"(?!)")
    return re.compile(b"".join(map(_kind, _SHAPES.findall(prefix))))


def _kind(piece: bytes) -> bytes:
    if piece[:1].isalnum() or piece[:1] == b"^":
        return b"[A-Za-z0-9^]+"
    return b"[ \t]+" if piece.isspace() else re.escape(piece)


def has_unseen(data: bytes) -> bool:
    """Whether it has fillers other than line breaks: written out, or escaped where all of it is
    JSON."""
    if any(one in data for one in _CONTROLS) or (data[:1] in (b"{", b"[") and b"\\u" in data):
        return True
    return not data.isascii() and any(
        one in data and sign.search(data) is not None for one, sign in _UNSEEN
    )


def may_wrap(data: bytes, stop: int) -> bool:
    """Whether a row of letters and digits that ends at `stop` can be part of a full line of
    base64."""
    after = data[stop : stop + 1]
    return after in (b"+", b"/") or (
        after in (b"\r", b"\n", b"\\") and _FULL.match(data, max(0, stop - 56)) is not None
    )


def is_wrapped(data: bytes) -> bool:
    """Whether it has a full line of wrapped base64."""
    return _FULL_LINE in data.translate(_LINES)
