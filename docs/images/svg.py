"""What a terminal shows, as SVG: the colours of a dark palette, and no fonts from elsewhere."""

from __future__ import annotations

import io
import re

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLORS = [
    (240, 113, 120),
    (152, 195, 121),
    (229, 192, 123),
    (97, 175, 239),
    (198, 120, 221),
    (86, 182, 194),
]
PAPER, INK = (22, 24, 29), (214, 218, 224)
THEME = TerminalTheme(
    PAPER, INK, [(40, 44, 52), *COLORS, INK], [(92, 99, 112), *COLORS, (255, 255, 255)]
)
# As rich's own template, without fonts from elsewhere.
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, ui-monospace, monospace;
  white-space: pre; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect width="{width}" height="{height}" rx="8" fill="#16181d"/>
<g transform="translate({terminal_x}, 14)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


def as_svg(text: str, name: str, columns: int) -> str:
    """A screen with its colours, as tmux captures it."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(re.sub(r"\ncode=\d+$", "", text)), soft_wrap=True)
    page = console.export_svg(title=name, theme=THEME, code_format=SVG, unique_id=name)
    page = re.sub(r'(-clip-terminal">\n<rect [^>]* height=")([\d.]+)', _taller, page)
    return "\n".join(line.rstrip() for line in page.splitlines()) + "\n"


def _taller(match: re.Match[str]) -> str:
    """rich cuts the last line off above its descenders."""
    return f"{match[1]}{float(match[2]) + 8:.1f}"
