"""How to write to this terminal: with or without colours, redrawn or line by line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

THEME = "RETINUE_THEME"
BACKGROUND = re.compile(r"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
OFF = ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class TerminalStyle:
    """`color`: whether colours are used. `moves`: whether lines may be drawn again in place.
    `theme`: whether the background is `dark`, `light` or `unknown`."""

    color: bool
    moves: bool
    theme: str = "unknown"


def is_on(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").strip().lower() not in OFF


def is_reader(environ: Mapping[str, str]) -> bool:
    """Whether a screen reader reads aloud what we write."""
    return is_on(environ, "RETINUE_AX_SCREEN_READER") or is_on(environ, "ACCESSIBLE")


def detect_style(environ: Mapping[str, str], stream: TextIO, color: str = "auto") -> TerminalStyle:
    """What --color says goes first, then NO_COLOR, then those who force, then what the terminal can
    do."""
    try:
        is_tty = stream.isatty()
    except ValueError:  # closed
        is_tty = False
    is_dumb = environ.get("TERM", "") in ("dumb", "unknown", "")
    moves = is_tty and not is_dumb and not is_on(environ, "CI") and not is_reader(environ)
    background = theme(environ)
    if color in ("always", "never"):
        return TerminalStyle(color == "always", moves, background)
    if environ.get("NO_COLOR"):
        return TerminalStyle(False, moves, background)
    if is_on(environ, "CLICOLOR_FORCE") or is_on(environ, "FORCE_COLOR"):
        return TerminalStyle(True, moves, background)
    return TerminalStyle(
        is_tty and not is_dumb and environ.get("CLICOLOR") != "0", moves, background
    )


def theme(environ: Mapping[str, str]) -> str:
    """The background as it was asked for (`--theme`), else what a terminal says of it in COLORFGBG:
    `15;0` is light on dark."""
    choice = environ.get(THEME, "").strip().lower()
    if choice in ("dark", "light"):
        return choice
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    if not background.isdigit():
        return "unknown"
    return "light" if int(background) in (7, 15) else "dark"


def background_of(answer: str) -> str:
    """Whether the colour that a terminal tells of its background is dark or light."""
    match = BACKGROUND.search(answer)
    if match is None:
        return "unknown"
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in match.groups())
    return "light" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5 else "dark"


def size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of the terminal behind a stream, as they are now."""
    try:
        dimensions = os.get_terminal_size(stream.fileno())
        if dimensions.columns > 0 and dimensions.lines > 0:
            return dimensions.columns, dimensions.lines
    except (OSError, ValueError):
        pass
    return 80, 24


def is_one_terminal() -> bool:
    """Whether stdout and stderr are the same terminal: then an answer that was shown on one of them
    is not repeated on the other."""
    try:
        files = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
        return sys.stdout.isatty() and files[0].st_rdev == files[1].st_rdev
    except (OSError, ValueError):
        return False
