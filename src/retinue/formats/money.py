"""Formats amounts of money. Where not all of an amount is known, because a call was never answered,
it is a bound: at most so much. Nothing else is imported here, so that listings start fast."""

from __future__ import annotations

import math

OFFLINE = "offline, no model"
"""What is said in place of a cost where no model was called."""


def money(usd: float | None, *, is_bound: bool = False, is_short: bool = False) -> str:
    """Dollars: `$0.18`, `at most $0.18`, or `≤$0.18` where there is little room. None is a price
    that no one knows, which is not nothing."""
    if usd is None:
        return "n/a"
    if is_bound:
        # A bound is never rounded down.
        steps = 100 if is_short or usd >= 0.005 else 10_000
        usd = math.ceil(round(usd * steps, 6)) / steps
    return bound(_dollars(usd), is_bound=is_bound, is_short=is_short)


def _dollars(usd: float) -> str:
    if usd == 0 or usd >= 0.005:
        return f"${usd:.2f}"
    return f"${usd:.4f}" if usd >= 0.00005 else "<$0.0001"


def bound(amount: str, *, is_bound: bool, is_short: bool = False) -> str:
    """An amount, marked when it is only known that it is not more."""
    if not is_bound:
        return amount
    return f"≤{amount}" if is_short else f"at most {amount}"
