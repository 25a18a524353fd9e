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
    names_question,
    short_id,
    shown_state,
    state_text,
)
from retinue.formats.money import bound, money
from retinue.formats.safe_text import json_text
from retinue.view.state_marks import mark

WIDTH = 79
"""Cells of a line that fits the smallest usual terminal."""

if TYPE_CHECKING:
    from retinue.host.listing import ListedRun

__all__ = [
    "ENDS", "FAILURES", "agent_label", "bound", "count", "glyph", "is_wanted", "json_line", "money",
    "names_question", "short_id", "short_span", "shown_state", "span", "span_text", "state_text",
    "sum_text", "tokens", "with_exit",
]  # fmt: skip


def glyph(state: str) -> str:
    return mark(state).glyph


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


def price_text(question: Mapping[str, Any]) -> str:
    """What a call that waits for a permission would cost, if it starts sub-agents: ` (5 forks of
    ...)`."""
    tag = question.get("price_tag")
    return f" ({price_tag(tag)})" if tag else ""


def cache(use: Mapping[str, Any]) -> str:
    """`79.2k tokens read of 84.0k expected, about $0.21 saved of $0.23`; nothing where there was no
    cache."""
    expected, read, n_written = use["expected_tokens"], use["read_tokens"], use["written_tokens"]
    if not (expected or read or n_written):
        return ""
    saved, hoped = use["saved_usd"], use["expected_usd"]
    text = f"{count(read)} tokens read of {count(expected)} expected"
    if saved is None or not (saved or hoped):
        return text
    if saved < 0:
        return f"{text}, about {money(-saved)} more than without it"
    return f"{text}, about {money(saved)} saved" + (f" of {money(hoped)}" if hoped > 0 else "")


def span(ms: float) -> str:
    """A time in a column: `850ms`, `31s`, `2m 02s`, `1h 58m`, `3d 4h`."""
    if ms < 1_000:
        return f"{max(0, int(ms))}ms"
    whole = int(ms / 1000 + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3_600}h {whole % 3_600 // 60:02}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3_600}h"


def span_text(ms: float) -> str:
    """A time in a sentence, with a space between number and unit: `2.4 s`, `90 s`, `2m 10s`."""
    if ms < 1_000:
        return f"{max(0, int(ms))} ms"
    if ms < 9_950:
        return f"{ms / 1000:.1f} s"
    return f"{int(ms / 1000 + 0.5)} s" if ms < 99_500 else span(ms)


def short_span(ms: float) -> str:
    """A time in one unit, four cells at most: `31s`, `2m`, `1h`, `3d`."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m")):
        if ms >= size:
            return f"{int(ms // size)}{unit}"
    return f"{max(0, int(ms // 1000))}s"


def with_exit(line: str, code: int) -> str:
    """A line that ends with `exit N` where that is not 0: at the right, if there is room."""
    if not code:
        return line
    word = f"exit {code}"
    room = WIDTH - len(line) - len(word)
    return f"{line}{' ' * room}{word}" if room >= 2 else f"{line} · {word}"


def sum_text(usd: float, at_most: float, is_partial: bool) -> str:
    """A sum of costs: what is known for sure, what it is at most, and whether there are unknown
    costs."""
    parts = [money(usd)] if usd or at_most or not is_partial else []
    parts += [money(at_most, is_bound=True)] if at_most - usd > 1e-9 else []
    return ", ".join([*parts, *(["more n/a" if parts else "n/a"] if is_partial else [])])


def amounts(line: ListedRun) -> tuple[str, str]:
    """Tokens and dollars of a listed run's tree; none where no model was called."""
    if line.is_offline:
        return "-", "offline"
    return tokens(line.tokens, is_bound=bool(line.tokens_estimated)), money(
        line.usd, is_bound=bool(line.usd_estimated)
    )


def json_line(value: Any) -> str:
    """One line of JSON, in which nothing is hidden from a reader or obeyed by a terminal: it is
    escaped."""
    return json_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
