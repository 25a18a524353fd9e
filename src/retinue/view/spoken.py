"""What a screen reader reads aloud: complete sentences, without glyphs and short forms."""

from __future__ import annotations

import re

from retinue.view.cells import plain
from retinue.view.request_panel import RequestPanel, panel_lines
from retinue.view.state_marks import MARKS

CHOOSE = "Type show, yes, always, no or later, then Enter: "
_GLYPHS = tuple(f"{mark.glyph} " for mark in MARKS.values())


def spoken_time(ms: float) -> str:
    """`53 seconds`, `2 minutes 10 seconds`."""
    if ms < 1_000:
        return _many(max(0, int(ms)), "millisecond")
    whole = int(ms / 1000 + 0.5)
    units = ((whole // 3_600, "hour"), (whole % 3_600 // 60, "minute"), (whole % 60, "second"))
    return " ".join([_many(n, name) for n, name in units if n][:2])


def _many(n: int, name: str) -> str:
    return f"{n} {name}{'' if n == 1 else 's'}"


def spoken_request(panel: RequestPanel) -> list[str]:
    """What is wanted. A change is described by its size, and `show` has its lines; everything else
    is read in full, because nothing may be allowed that was not read."""
    who = panel.who or panel.title
    first = f"{who} needs you. It wants to {panel.wants}" if panel.wants else f"{who} needs you."
    if panel.is_diff and panel.signs:
        return [f"{first}:", f"{_many(panel.n_added, 'line')} added, {panel.n_removed} removed."]
    return [f"{first}.", *spoken_panel(panel)]


def spoken_panel(panel: RequestPanel) -> list[str]:
    """All of it, line by line."""
    return [text for line in panel_lines(panel) if (text := plain(line).strip())]


def spoken_end(line: str) -> str:
    """The last line about a run as a sentence."""
    text = next((line.removeprefix(g) for g in _GLYPHS if line.startswith(g)), line)
    text = re.sub(r" {2,}|( · )", ", ", text)
    return text[:1].upper() + text[1:] + "."
