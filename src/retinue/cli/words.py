"""How things are said: states in one vocabulary, short ids, numbers of a fixed width, times."""

from __future__ import annotations

import re
from collections.abc import Iterable

STATES = {
    "queued": "queued",
    "thinking": "running",
    "working": "running",
    "waiting": "waiting",
    "asking": "needs_input",
    "stopping": "cancelling",
}
"""States of the machine, as people are told of them; the others keep their names."""
ENDS = ("completed", "incomplete", "failed", "timed_out", "cancelled", "interrupted")
FAILURES = ("failed", "timed_out", "interrupted", "incomplete")
GLYPHS = {
    "queued": "○",
    "running": "●",
    "waiting": "◌",
    "needs_input": "?",
    "cancelling": "◍",
    "paused": "‖",
    "completed": "✓",
    "cancelled": "-",
}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)(?:s|$))?(?:(\d+)ms)?")
_STAMP = re.compile(r"-[0-9a-f]{8}(?=\.|$)")


def state(name: str) -> str:
    return STATES.get(name, name)


def shown(word: str) -> str:
    """A state for people."""
    return "needs you" if word == "needs_input" else word.replace("_", " ")


def glyph(word: str) -> str:
    return GLYPHS.get(word, "✗")


def wanted(word: str, names: Iterable[str]) -> bool:
    """Whether a state is among those asked for; `failed` means every way to fail, `open` everything that goes on."""
    for name in names:
        if name == word or (name == "failed" and word in FAILURES) or (name == "open" and word not in ENDS):
            return True
    return False


def short(id: str) -> str:
    """Ids start with their time, so runs of one minute look alike: people are shown a piece of the other end."""
    return id[24:30] if len(id) == 36 else id


def agent(name: str) -> str:
    """An agent's name without the stamp that tells apart two definitions of one name."""
    return _STAMP.sub("", name)


def count(n: float) -> str:
    """`940`, `18.9k`, `1.2M`."""
    if n < 1_000:
        return str(int(n))
    if n < 999_950:
        return f"{n / 1_000:.1f}k"
    return f"{n / 1_000_000:.1f}M"


def money(usd: float | None) -> str:
    """Dollars; None is a price that nobody knows, which is not nothing."""
    if usd is None:
        return "n/a"
    return f"${usd:.2f}" if usd == 0 or usd >= 0.005 else f"${usd:.4f}"


def span(ms: float) -> str:
    """`0.4s`, `12s`, `4m05s`, `3h20m`, `2d4h`."""
    seconds = max(0.0, ms / 1000)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3_600}h{whole % 3_600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3_600}h"


def seconds(text: str) -> float:
    """`90`, `1.5s`, `10m`, `1h30m`, `2d` as seconds; `ValueError` for anything else."""
    found = _DURATION.fullmatch(text.strip().lower())
    if not found or not any(found.groups()):
        raise ValueError(f"{text!r} is not a length of time: write 90, 45s, 10m, 1h30m or 2d")
    days, hours, minutes, secs, ms = (float(part or 0) for part in found.groups())
    return days * 86_400 + hours * 3_600 + minutes * 60 + secs + ms / 1000


def line(text: str, width: int = 0) -> str:
    """One line of a text, without anything that a terminal would obey, cut to `width`."""
    flat = "".join(c if c.isprintable() else " " for c in " ".join(text.split()))
    return flat if not width or len(flat) <= width else flat[: max(1, width - 1)] + "…"


def safe(text: str) -> str:
    """A text without terminal controls; newlines and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
