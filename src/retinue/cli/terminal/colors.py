"""Lines of a view in the colours of a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.text import Text

from retinue.view.ascii_marks import as_shown
from retinue.view.cells import Cells
from retinue.view.state_marks import style


@dataclass(frozen=True, slots=True)
class Palette:
    """`theme` is the background of the terminal (`dark`, `light`, `unknown`); without `color` bold,
    dim and reverse are left."""

    theme: str = "unknown"
    color: bool = True

    def style(self, role: str, *, is_glyph: bool = False) -> str:
        return style(role, self.theme, is_glyph=is_glyph, color=self.color) if role else ""

    def text(self, line: Iterable[Cells]) -> Text:
        out = Text(no_wrap=True)
        for piece in line:
            out.append(as_shown(piece.text), style=self.style(piece.role, is_glyph=piece.is_glyph))
        return out

    def colored(self, text: str, role: str = "") -> Text:
        return Text(as_shown(text), style=self.style(role), no_wrap=True)


def ansi(text: Text) -> str:
    """With the sequences of its styles, for a stream that is written line by line."""
    from rich.console import Console

    console = Console(
        force_terminal=True, color_system="standard", width=10_000, legacy_windows=False
    )
    with console.capture() as captured:
        console.print(text, end="", soft_wrap=True, highlight=False, markup=False, emoji=False)
    return captured.get()
