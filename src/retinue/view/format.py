"""How things are said: states in one vocabulary, short ids, numbers of a fixed width, times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retinue.core.state_names import (
    ENDS,
    FAILURES,
    agent_label,
    is_wanted,
    short_id,
    shown_state,
    state_text,
)
from retinue.formats.money import bound, money
from retinue.formats.safe_text import json_text

if TYPE_CHECKING:
    from retinue.host.listing import ListedRun

__all__ = [
    "ENDS", "FAILURES", "agent_label", "bound", "count", "glyph", "is_wanted", "json_line", "money",
    "short_id", "shown_state", "span", "state_text", "tokens",
]  # fmt: skip

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


def glyph(word: str) -> str:
    return GLYPHS.get(word, "✗")


def count(n: float) -> str:
    """`940`, `18.9k`, `1.2M`."""
    if n < 1_000:
        return str(int(n))
    if n < 999_950:
        return f"{n / 1_000:.1f}k"
    return f"{n / 1_000_000:.1f}M"


def tokens(n: int, *, is_bound: bool = False, is_short: bool = False) -> str:
    """So many tokens, marked when it is only known that they are not more; in six characters if
    need be."""
    if is_bound and is_short and n > 99_900:
        return f"≤{-(-n // 1_000)}k" if n <= 999_000 else f"≤{-(-n // 1_000_000)}M"
    if is_bound and n >= 1_000:
        step = 100 if n <= 999_900 else 100_000
        n = -(-n // step) * step
    return bound(count(n), is_bound=is_bound, is_short=is_short)


def price_tag(tag: Mapping[str, Any]) -> str:
    """`5 forks of about 84.0k tokens: input about $0.42, $1.26 without the cache`; of an unknown
    price only tokens."""
    n, usd, plain = max(1, tag["n"]), tag["usd"], tag["usd_without_cache"]
    what = ("fork" if tag["is_fork"] else "sub-agent") + ("s" if n > 1 else "")
    size = f"{n} {what} of about {count(tag['tokens'] / n)} tokens"
    if not usd and not plain:
        return size
    text = f"{size}: input about {money(usd)}"
    return text if money(usd) == money(plain) else f"{text}, {money(plain)} without the cache"


def asked_price(question: Mapping[str, Any]) -> str:
    """What a call that waits for a permission would cost, if it starts somebody: ` (5 forks of
    ...)`."""
    tag = question.get("price_tag")
    return f" ({price_tag(tag)})" if tag else ""


def cache(use: Mapping[str, Any]) -> str:
    """`79.2k tokens read of 84.0k expected, about $0.21 saved of $0.23`; nothing where there was no
    cache."""
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


def amounts(line: ListedRun) -> tuple[str, str]:
    """Tokens and dollars of a listed run's tree."""
    return tokens(line.tokens, is_bound=bool(line.tokens_estimated)), money(
        line.usd, is_bound=bool(line.usd_estimated)
    )


def json_line(value: Any) -> str:
    """One line of JSON, in which nothing is hidden from a reader or obeyed by a terminal: it is
    escaped."""
    return json_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
