"""Makes foreign text safe to show: on one line, on several, or with every invisible character
spelled out.

What comes from models, servers, files, repositories and providers may hold what a terminal obeys,
what turns a line around, and what no one sees. Nothing else in the program decides what of that is
let through.

`one_line` and `several_lines` take it away: escape sequences whole, controls, marks of direction,
what has no width, variation selectors, tags, and the fifth and further marks on one letter. Every
kind of line break is one line break. What has no shape that we know (private use, unassigned, half
of a surrogate pair) is U+FFFD. A joiner stays where spelling or a picture is made of it, and
nowhere else: after a virama (Sinhala, Hindi), between letters of the Arabic script (Persian),
between two pictures (a family). It can be there once, and so carries no hidden text.

`reveal` is for decisions: it takes nothing away, and what would not be seen is written as an
escape."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

MARKS = 4
"""How many combining marks one letter may carry; towers of them reach into other lines."""
LOST = "\N{REPLACEMENT CHARACTER}"
_ZWNJ, _ZWJ = "\u200c", "\u200d"
# A string that is never ended is not taken away with all that follows it: only its beginning is.
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*+[ -/]*+(?:[@-~]|\\Z)"  # CSI: colours, cursor
    # strings
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*+(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[\\]PX^_]|\x1b[ -/]*+[0-~]"
)
_BREAK = re.compile("\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_JOINER = re.compile(f"[{_ZWNJ}{_ZWJ}]+")
_TOWER = re.compile(f"m{{{MARKS + 1},}}")
_BRAILLE_BLANK = "\u2800"
# What Unicode lets a renderer ignore, though its category does not say so: fillers, selectors,
# invisible vowels.
_IGNORED = (
    *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x1D159),
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10),
    *range(0xFFF0, 0xFFF9),
    *range(0xE0000, 0xE1000),
)
# Format characters that are signs of their own: numbers, years and ends of verses are written with
# them.
_SIGNS = (*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD)
_ARABIC = (
    range(0x0620, 0x0700),
    range(0x0750, 0x0780),
    range(0x08A0, 0x0900),
    range(0xFB50, 0xFE00),
)
_PICTURES = (
    range(0x2190, 0x2200),
    range(0x2600, 0x27C0),
    range(0x2B00, 0x2C00),
    range(0x1F000, 0x1FB00),
)
_ESCAPE = re.compile(r"x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}")
_NAME_ESCAPE = re.compile(rf"[ntr]|{_ESCAPE.pattern}")


class _Table(dict[int, str]):
    """What each character becomes; it is found out when the character is first met."""

    def __init__(self, decide: Callable[[str], str]) -> None:
        super().__init__()
        self._decide = decide

    def __missing__(self, code: int) -> str:
        self[code] = replacement = self._decide(chr(code))
        return replacement


def one_line(text: str, most: int = 0) -> str:
    """For rows, labels, names and notices: one line, blanks as single spaces, at most `most`
    characters (0: all)."""
    if not (text.isascii() and text.isprintable()):
        text = _tamed(text)
    text = " ".join(text.split())
    return (
        text
        if not most or len(text) <= most
        else text[: max(0, most - 1)].rstrip(_ZWNJ + _ZWJ) + "…"
    )


def several_lines(text: str) -> str:
    """For answers, logs and pages: the same, with its lines and tabs."""
    return (
        text
        if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()
        else _tamed(text)
    )


def reveal(text: str, *, keep: str = "\n\t") -> str:
    r"""For a person who decides: invisible characters are written as `\x1b`, `\u202e`,
    `\U000e0041`; `keep` stays.

    A byte that is not text, as in some file names, is `\xe9`. A backslash that could be taken for
    an escape of ours is doubled, so that no two texts look the same. With `keep=""` it is one line,
    in which a line break is `\n`."""
    if text.isascii() and text.isprintable() and "\\" not in text:
        return text
    table, escape = (_SPELLED, _ESCAPE) if keep else (_SPELLED_NAME, _NAME_ESCAPE)

    def slashes(match: re.Match[str]) -> str:
        after = text[match.end() : match.end() + 1]
        is_like_ours = escape.match(text, match.end()) or (after and table[ord(after)] != after)
        return match[0] * 2 if is_like_ours else match[0]

    return _spelled_out(re.sub(r"\\+", slashes, text), table, _escaped)


def json_text(text: str) -> str:
    """JSON in which invisible characters are JSON's own escapes: the same values, in a pipe and on
    a screen."""
    return text if text.isascii() and text.isprintable() else _spelled_out(text, _JSON, _utf16)


def _spelled_out(text: str, table: _Table, spell: Callable[[str], str]) -> str:
    out, at = list[str](), 0
    for start, end in _towers(text):
        out += [text[at:start].translate(table), *map(spell, text[start:end])]
        at = end
    return "".join((*out, text[at:].translate(table)))


def _tamed(text: str) -> str:
    text = _BREAK.sub("\n", _SEQUENCE.sub("", text)).translate(_SHOWN)
    if text.isascii():
        return text
    text, out, at = _JOINER.sub(_joined, text), list[str](), 0
    for start, end in _towers(text):
        out.append(text[at:start])
        at = end
    return "".join((*out, text[at:]))


def _towers(text: str) -> Iterator[tuple[int, int]]:
    """The positions of marks that are too many for their letter."""
    if text.isascii():
        return
    for tower in _TOWER.finditer(text.translate(_SHAPE)):
        yield tower.start() + MARKS, tower.end()


def _joined(match: re.Match[str]) -> str:
    """One joiner where a word or a picture is made of it, otherwise none."""
    start, end = match.span()
    before, after = match.string[max(0, start - 1) : start], match.string[end : end + 1]
    if not before or not after:
        return ""
    is_spelling = unicodedata.combining(before) == 9 and unicodedata.category(after) == "Lo"
    if match[0][0] == _ZWNJ:
        is_spelling = is_spelling or (_is_in(before, _ARABIC) and _is_in(after, _ARABIC))
    else:
        is_spelling = is_spelling or (_is_in(before, _PICTURES) and _is_in(after, _PICTURES))
    return match[0][0] if is_spelling else ""


def _is_in(c: str, ranges: tuple[range, ...]) -> bool:
    return any(ord(c) in span for span in ranges) and unicodedata.category(c) in (
        "Lo",
        "So",
        "Sk",
        "Sm",
    )


def _is_seen(c: str) -> bool:
    """Whether a reader sees it, as something else than a space."""
    return (c.isprintable() and ord(c) not in _IGNORED and c != _BRAILLE_BLANK) or ord(c) in _SIGNS


def _shown(c: str) -> str:
    if _is_seen(c) or c in "\n\t" or c in _ZWNJ + _ZWJ or unicodedata.category(c) == "Zs":
        return c
    if c == _BRAILLE_BLANK:
        return " "
    return LOST if unicodedata.category(c) in ("Co", "Cn", "Cs") and ord(c) not in _IGNORED else ""


def _spelled(c: str) -> str:
    return c if _is_seen(c) or c in "\n\t" else _escaped(c)


def _spelled_name(c: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(c) or _spelled(c)


def _escaped(c: str) -> str:
    code = ord(c)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _utf16(c: str) -> str:
    units = c.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[n : n + 4]}" for n in range(0, len(units), 4))


_SHOWN, _SPELLED, _SPELLED_NAME = _Table(_shown), _Table(_spelled), _Table(_spelled_name)
_JSON = _Table(lambda c: c if _is_seen(c) or c in "\n\t" else _utf16(c))
_SHAPE = _Table(lambda c: "m" if unicodedata.category(c) in ("Mn", "Me") else "-")


def clean(text: str) -> str:
    """Half a surrogate pair can be neither stored nor sent: it becomes U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
