"""Lines of a view on stdout: in colour on a terminal, as plain text everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from retinue.cli.context import CommandContext, out
from retinue.cli.terminal.colors import Palette, ansi
from retinue.cli.terminal.terminal_style import detect_style
from retinue.view.ascii_marks import as_shown
from retinue.view.cells import Line, plain


def shown(context: CommandContext, lines: Iterable[Line]) -> tuple[str, bool]:
    """The text, and whether it has colours or other attributes of ours."""
    style = detect_style(context.environ, sys.stdout, context.color)
    if not style.color:
        return as_shown("\n".join(plain(line) for line in lines)), False
    palette = Palette(style.theme, style.color)
    return "\n".join(ansi(palette.text(line)).rstrip() for line in lines), True


def print_lines(context: CommandContext, lines: Iterable[Line]) -> None:
    text, is_styled = shown(context, lines)
    out(text, styled=is_styled)
