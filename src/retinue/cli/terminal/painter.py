"""Redraws a few lines at the bottom of a terminal in place.

rich renders them. It does not place them: its own live display counts lines as they were before a
resize, and leaves the rest of a frame behind when a terminal has wrapped it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from retinue.view.ascii_marks import as_shown

if TYPE_CHECKING:
    from rich.text import Text

BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Terminals that know it show the part between in one step; the others ignore it."""
KEEP_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def title_text(text: str) -> str:
    """What names the window."""
    return f"\x1b]2;{text}\x1b\\"


class Painter:
    """Draws on one stream. `color` as the person wants it."""

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        from rich.console import Console

        self._stream = stream
        self._console = Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system="standard",
            no_color=not color,
            width=1_000,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._title = ""
        self._drawn: list[int] = []
        self._last = ""
        self._width = 0

    def render(self, line: Text) -> str:
        """One line with the sequences of its styles. Without colour, bold and reverse are left of
        them."""
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True)
        return as_shown(captured.get())

    def paint(self, lines: Sequence[Text], width: int) -> None:
        """Replace what is there by these lines, none of them longer than the terminal is wide."""
        body = [self.render(line) for line in lines]
        text = "".join(f"{line}\x1b[K\r\n" for line in body[:-1]) + (
            f"{body[-1]}\x1b[K" if body else ""
        )
        if text == self._last and width == self._width:
            return
        clear = "\x1b[J" if width != self._width or len(lines) < len(self._drawn) else ""
        self._write(f"{BEGIN}{HIDE}{self._top(width)}{clear}{text}{END}")
        self._drawn, self._last, self._width = [line.cell_len for line in lines], text, width

    def title(self, text: str) -> None:
        """The title of the window, until `leave` puts back what was there."""
        if text and text != self._title:
            keep = "" if self._title else KEEP_TITLE
            self._write(f"{keep}{title_text(text)}")
            self._title = text

    def clear(self, width: int) -> None:
        """Take everything away again."""
        if self._drawn:
            self._write(f"{self._top(width)}\x1b[J")
        self._drawn, self._last = [], ""

    def above(self, lines: Sequence[Text], width: int) -> None:
        """Lines that stay, before those that change; call `paint` afterwards."""
        self.clear(width)
        self._write("".join(f"{self.render(line)}\r\n" for line in lines))

    def leave(self, lines: Sequence[Text], width: int) -> None:
        """The last frame stays; what is written next begins on a line of its own."""
        self.clear(width)
        title = RESTORE_TITLE if self._title else ""
        self._write("".join(f"{self.render(line)}\r\n" for line in lines) + SHOW + title)
        self._drawn, self._last, self._title = [], "", ""

    def _top(self, width: int) -> str:
        """Back to where the last frame begins. A line that is longer than the terminal is wide by
        now was wrapped."""
        high = sum(max(1, -(-cells // width)) for cells in self._drawn)
        return "\r" + (f"\x1b[{high - 1}A" if high > 1 else "")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass
