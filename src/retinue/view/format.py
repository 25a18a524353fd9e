"""How things are said: states in one vocabulary, short ids, numbers of a fixed width, times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from retinue.formats.money import bound, money

__all__ = [
    "ENDS", "FAILURES", "agent", "bound", "count", "glyph", "money", "seconds", "short", "shown", "span", "state",
    "tokens", "wanted",
]  # fmt: skip

STATES = {
    "queued": "queued",
    "thinking": "running",
    "short": "waiting",
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


def tokens(n: int, *, is_bound: bool = False, is_short: bool = False) -> str:
    """So many tokens, marked when it is only known that they are not more; in six characters if need be."""
    if is_bound and is_short and n > 99_900:
        return f"≤{-(-n // 1_000)}k" if n <= 999_000 else f"≤{-(-n // 1_000_000)}M"
    if is_bound and n >= 1_000:
        step = 100 if n <= 999_900 else 100_000
        n = -(-n // step) * step
    return bound(count(n), is_bound=is_bound, is_short=is_short)


def price_tag(tag: Mapping[str, Any]) -> str:
    """`5 forks of about 84.0k tokens: input about $0.42, $1.26 without the cache`; of an unknown price only tokens."""
    n, usd, plain = max(1, tag["n"]), tag["usd"], tag["usd_without_cache"]
    what = ("fork" if tag["is_fork"] else "sub-agent") + ("s" if n > 1 else "")
    size = f"{n} {what} of about {count(tag['tokens'] / n)} tokens"
    if not usd and not plain:
        return size
    text = f"{size}: input about {money(usd)}"
    return text if money(usd) == money(plain) else f"{text}, {money(plain)} without the cache"


def asked_price(question: Mapping[str, Any]) -> str:
    """What a call that waits for a permission would cost, if it starts somebody: ` (5 forks of ...)`."""
    tag = question.get("price_tag")
    return f" ({price_tag(tag)})" if tag else ""


def cache_json(figures: Mapping[str, Any]) -> dict[str, Any]:
    """What prompt caches were expected to give, and gave: as it is told, of what is recorded. A price that nobody
    knows is null."""
    known = not figures.get("unpriced", 0)
    return {
        "expected_tokens": figures.get("expected", 0),
        "read_tokens": figures.get("read", 0),
        "written_tokens": figures.get("written", 0),
        "expected_usd": figures.get("expected_nanos", 0) / 1e9 if known else None,
        "saved_usd": figures.get("saved_nanos", 0) / 1e9 if known else None,
    }


def cache(use: Mapping[str, Any]) -> str:
    """`79.2k tokens read of 84.0k expected, about $0.21 saved of $0.23`; nothing where there was no cache."""
    expected, read, written = use["expected_tokens"], use["read_tokens"], use["written_tokens"]
    if not (expected or read or written):
        return ""
    saved, hoped = use["saved_usd"], use["expected_usd"]
    text = f"{count(read)} tokens read of {count(expected)} expected"
    if saved is None or not (saved or hoped):
        return text
    if saved < 0:
        return f"{text}, about {money(-saved)} more than without it"
    return f"{text}, about {money(saved)} saved" + (f" of {money(hoped)}" if hoped > 0 else "")


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
