"""Divides amounts of a budget among children, and formats them."""

from __future__ import annotations

from retinue.core.account import Limit
from retinue.core.state import four
from retinue.core.values import NANOS_PER_USD


def written(i: int, amount: int) -> str:
    """So much of amount `i`, for people: `$0.25`, `1,200 tokens`."""
    if i != 1:
        return f"{written_bare(i, amount)} {('tokens', '', 'turns', 'tool calls')[i]}"
    whole, _, part = f"{amount / NANOS_PER_USD:.9f}".partition(".")
    return f"${whole}.{part[:2]}{part[2 : 6 if amount >= 1_000 else 9].rstrip('0')}"


def written_bare(i: int, amount: int) -> str:
    """The same without its unit, where that is said beside it: `$0.25`, `1,200`."""
    return written(i, amount) if i == 1 else f"{amount:,}"


def shares(free: Limit, policy: str, weights: list[int]) -> list[Limit]:
    """Divide what a parent has free among the children of one request.

    `equal`: the same to each. `remaining`: all of it to the first, nothing to those after it.
    `proportional`: by weight. `fixed:N`: N tokens each. Unlimited amounts stay unlimited; what does
    not divide stays with the parent."""
    n = len(weights)
    if policy == "equal":
        return [_each(free, 1, n)] * n
    if policy == "remaining":
        return [free] + [_each(free, 0, 1)] * (n - 1)
    if policy == "proportional":
        total = sum(weights) or 1
        return [_each(free, w, total) for w in weights]
    if policy.startswith("fixed:") and policy[6:].isdecimal() and policy.isascii():
        return [(int(policy[6:]), None, None, None)] * n
    raise ValueError(
        f"Unknown share {policy!r}. Use equal, remaining, proportional, fixed:<tokens> or drawn."
    )


def _each(free: Limit, part: int, whole: int) -> Limit:
    return four(None if f is None else max(0, f) * part // whole for f in free)
