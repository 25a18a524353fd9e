"""How screens mark a state: a glyph, a word and a colour, of which any one may be missing.

A screen tells more apart than the record does: a run that is `running` thinks or works, one that
waits for its provider is rate limited or retrying, and one that a limit has stopped is not called
failed. JSON keeps the names of the record (`core.state_names`). Only little is imported here,
because listings have to be quick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from retinue.core.state_names import FAILURES, state_text

LIMITS = ("budget", "turn_limit", "length")
"""Why a run that is `incomplete` has stopped: at a limit, and what it has is kept."""


class StateMark(NamedTuple):
    """`plain` is the glyph where only ASCII can be shown; `role` names the colour (`COLORS`)."""

    word: str
    glyph: str
    plain: str
    role: str


MARKS: dict[str, StateMark] = {
    name: StateMark(state_text(name), *rest)
    for name, rest in {
        "needs_input": ("◆", "?", "you"),
        "failed": ("✗", "x", "fail"),
        "working": ("●", "*", "work"),
        "thinking": ("◉", "o", "work"),
        "rate_limited": ("◷", "~", "held"),
        "retrying": ("◷", "~", "held"),
        "at_limit": ("◐", "%", "held"),
        "cancelling": ("▣", "#", "idle"),
        "paused": ("‖", "=", "idle"),
        "waiting": ("○", ":", "idle"),
        "queued": ("◌", ".", "idle"),
        "completed": ("✓", "+", "done"),
        "cancelled": ("⊘", "-", "idle"),
    }.items()
}
"""In the order of loudness, in which screens count them."""
LOUD = ("needs_input", "rate_limited", "retrying", "working", "thinking", "paused")
"""What one row tells of those that are shown by it alone, the loudest first."""
AFTER_CANCEL = ("needs_input", "cancelling", "cancelled", "completed", "failed", "at_limit")
"""The order in which they are counted while a tree is being stopped."""


def mark_name(state: str, *, stop: str = "", trouble: str = "", is_thinking: bool = False) -> str:
    """The name in `MARKS` of a state of the record. `stop` is why a run has ended, `trouble` what
    keeps its provider."""
    if state == "running":
        return "thinking" if is_thinking else "working"
    if state == "incomplete" and any(word in stop for word in LIMITS):
        return "at_limit"
    if state in FAILURES:
        return "failed"
    if state == "waiting" and trouble:
        return "rate_limited" if trouble in ("rate_limit", "rate_limited") else "retrying"
    return state if state in MARKS else "waiting"


def loudest(own: str, others: Iterable[str]) -> str:
    """The mark of a run that represents its tree: a run that only waits shows whether a run below
    it is at work, is blocked, or needs a person."""
    if own not in ("waiting", "queued"):
        return own
    names = set(others)
    return next((name for name in LOUD if name in names), own)


def mark(state: str) -> StateMark:
    """The mark of a state of the record, or of a name in `MARKS`."""
    return MARKS[state if state in MARKS else mark_name(state)]


def counted(counts: Mapping[str, int], *, is_merged: bool) -> list[tuple[str, int]]:
    """How many there are of each mark, the loudest first. `is_merged`: who thinks is counted among
    those that work, where there is little room."""
    counts_left = {name: n for name, n in counts.items() if n > 0}
    if is_merged and "thinking" in counts_left:
        counts_left["working"] = counts_left.get("working", 0) + counts_left.pop("thinking")
    first: Iterable[str] = AFTER_CANCEL if "cancelling" in counts_left else ()
    order = dict.fromkeys((*first, *MARKS))
    return [(name, counts_left[name]) for name in order if name in counts_left]


Theme = str
COLORS: dict[Theme, dict[str, str]] = {
    "dark": {"work": "bright_blue", "fail": "bright_red", "held": "bright_magenta"},
    "light": {"work": "blue", "fail": "red", "held": "magenta"},
    "unknown": {"work": "bold", "fail": "red", "held": "magenta"},
}
"""Colours of states by the background of the terminal: the 16 of its own palette, never another,
and never bright black, which some palettes make invisible."""
_ALWAYS = {"you": "black on yellow", "done": "green", "title": "bold"}
_GLYPH_ONLY = {"dark": ("done",), "light": ("done",), "unknown": ("done", "fail", "held")}


def style(
    role: str, theme: Theme = "unknown", *, is_glyph: bool = False, color: bool = True
) -> str:
    """The style of a role, in the words of rich; "" is the user's own ink. Where a colour can be
    hard to read only the glyph has it. Without colour, bold and dim are left, and `needs you` is
    reversed."""
    if role == "cursor":
        return "reverse"
    if role in ("idle", "quiet"):
        return "" if theme == "unknown" and color else "dim"
    if not color:
        return {"you": "reverse", "title": "bold", "work": "bold"}.get(role, "")
    if role in _GLYPH_ONLY[theme] and not is_glyph:
        return ""
    return _ALWAYS.get(role) or COLORS[theme].get(role, "")
