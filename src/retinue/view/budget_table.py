"""The budget of a run as it is shown: limits, what is spent and held of them, and what is left."""

from __future__ import annotations

from typing import Any

from retinue.core.account import DIMENSIONS, UNLIMITED, Account
from retinue.core.budget_shares import written, written_bare
from retinue.core.values import NANOS_PER_USD
from retinue.formats.money import bound

__all__ = [
    "AT_LIMIT",
    "NAMES",
    "Account",
    "account_json",
    "amount_text",
    "exact",
    "has_limits",
    "table",
]

NAMES = {"tokens": "tokens", "usd": "dollars", "turns": "turns", "calls": "tool calls"}
AT_LIMIT = {
    "land": "take one last turn to finish",
    "ask": "wait and ask you",
    "stop": "end now",
}


def has_limits(account: Account | None) -> bool:
    return account is not None and account.limit != UNLIMITED


def amount_text(name: str, amount: float) -> str:
    """So much of an amount, for people: `$1.00`, `5,000 tokens`."""
    return written(DIMENSIONS.index(name), exact(name, amount))


def exact(name: str, amount: float) -> int:
    """An amount as accounts have it: dollars are nano-dollars there."""
    return round(amount * NANOS_PER_USD) if name == "usd" else int(amount)


def table(title: str, account: Account) -> str:
    rows = [(title, "spent", "held", "limit", "left")]
    for i, name in enumerate(DIMENSIONS):
        limit, spent, reservation = account.limit[i], account.spent[i], account.held[i]
        if limit is None and not spent:
            continue
        rest = "-" if limit is None else written_bare(i, max(0, limit - spent - reservation))
        rows.append(
            (
                NAMES[name],
                spent_text(account, i),
                written_bare(i, reservation),
                "-" if limit is None else written_bare(i, limit),
                rest,
            )
        )
    widths = [max(len(row[n]) for row in rows) for n in range(5)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(row[n].rjust(widths[n]) for n in range(1, 5))])
        for row in rows
    ]
    return "\n".join([*lines, f"at limit  {AT_LIMIT[account.on_limit]}"])


def spent_text(account: Account, i: int) -> str:
    """What is spent of an amount, marked where it is only known that it is not more."""
    is_bound = i < 2 and bool(account.guess[i])
    if i == 1 and account.guess[2]:
        sure = account.spent[1] - account.guess[1]
        return f"more than {written_bare(1, sure)}" if sure else "n/a"
    return bound(written_bare(i, account.spent[i]), is_bound=is_bound)


def account_json(account: Account) -> dict[str, Any]:
    return {
        "limit": _amounts(account.limit),
        "spent": _amounts(account.spent),
        "held": _amounts(account.held),
        "kept_for_last_turn": _amounts(account.reserve),
        "on_limit": account.on_limit,
        "tokens_estimated": account.guess[0],
        "usd_estimated": account.guess[1] / NANOS_PER_USD,
        "tokens_unpriced": account.guess[2],
        "cost_is_known": not (account.guess[1] or account.guess[2]),
    }


def _amounts(amounts: Any) -> dict[str, Any]:
    return {
        n: a / 1e9 if n == "usd" and a is not None else a
        for n, a in zip(DIMENSIONS, amounts, strict=True)
    }
