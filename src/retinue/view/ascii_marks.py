"""Screens in ASCII: what every mark becomes where a terminal, a font or a locale has none of them.
A row keeps its width, so that columns stay where they are. Little is imported here, because every
command asks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from retinue.view.state_marks import MARKS

VARIABLE = "RETINUE_ASCII"
WIDE_SYMBOLS = ("zh", "ja", "ko")
"""Languages in whose fonts many marks are two cells wide."""
COERCED = "C.UTF-8"
"""What Python itself makes of LC_CTYPE in the C locale; LANG says what was there."""
_SIGNS = {
    **{mark.glyph: mark.plain for mark in MARKS.values()},
    "├ ": "|-",
    "└ ": "\\-",
    "├": "|",
    "└": "\\",
    "│": "|",
    "▸": ">",
    "↳": "->",
    "·": "-",
    "\N{EN DASH}": "-",
    "\N{EM DASH}": "-",
    "↑↓": "up down",
    "↑": "up",
    "↓": "down",
    "↵": "enter",
    "← →": "left right",
    "←": "<-",
    "→": "->",
    "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}": ">",
    "•": "*",
    "─": "-",
    "█": "#",
    "▒": "=",
    "░": ".",
    **dict.fromkeys("▁▂▃▄▅▆▇", ""),
}
_SIGN = re.compile("|".join(re.escape(sign) for sign in sorted(_SIGNS, key=len, reverse=True)))
_CUT = re.compile(r"(\w?)…(\S*)( (?= ))?")
_AT_MOST = re.compile(r"( ?)( ?)≤")


class Charset:
    """How this process writes on its terminal. There is one, as there is one terminal."""

    is_ascii = False


def use_charset(environ: Mapping[str, str], *, is_terminal: bool, encoding: str = "utf-8") -> None:
    """Take the one that is asked for, or the one that the terminal can show."""
    choice = environ.get(VARIABLE, "").strip().lower()
    if choice:
        Charset.is_ascii = choice not in ("0", "false", "no", "off")
    else:
        is_utf8 = "utf" in encoding.lower()
        Charset.is_ascii = not is_utf8 or (is_terminal and not has_marks(environ, encoding))


def has_marks(environ: Mapping[str, str], encoding: str = "utf-8") -> bool:
    """Whether a terminal can show marks that are one cell wide, as far as it says so."""
    if "utf" not in encoding.lower() or environ.get("TERM") == "linux":
        return False
    names = ["LC_ALL", "LC_CTYPE", "LANG"]
    if environ.get("LC_CTYPE") == COERCED and environ.get("LANG"):
        names.remove("LC_CTYPE")
    locale = next((environ[name] for name in names if environ.get(name)), "")
    if not locale:
        return True
    language, _, codeset = locale.partition(".")
    if language.partition("_")[0].lower() in WIDE_SYMBOLS:
        return False
    return "utf" in codeset.lower() or (not codeset and language not in ("C", "POSIX"))


def as_shown(text: str) -> str:
    """A text of ours as it is written on the terminal of this process."""
    return text if not Charset.is_ascii or text.isascii() else in_ascii(text)


def in_ascii(text: str) -> str:
    """The same with ASCII in place of marks. What becomes longer takes the room from beside it: a
    cut another letter, a bound a space before it."""
    text = _CUT.sub(_cut, text)
    text = _AT_MOST.sub(lambda m: f"{m[1]}{'<=' if m[2] else '<'}" if m[1] else "<=", text)
    return _SIGN.sub(lambda match: _SIGNS[match[0]], text)


def _cut(match: re.Match[str]) -> str:
    before, after, space = match.groups()
    return f"..{after}{space or ''}" if before else f"..{after}"
