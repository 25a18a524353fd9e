"""Runs that wait for their provider, or at a limit: what for, what to do next, and whether anything
of a tree still moves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.store.base import Row


LIMITS = ("tokens", "usd", "turns", "calls")


def raise_it(run: str, lack: str, more: int) -> str:
    """The command that adds to a limit, by the amount that is short; `more` is in nano-dollars
    where it is dollars."""
    much = f"{-(-more // 10_000_000) / 100:.2f}" if lack == "usd" else str(more)
    return f"retinue budget {run} --add-{lack} {much}"


def advice(kind: str, waits_for: str, model: str, run: str, more: int = 0) -> str:
    """What a run waits for, and what somebody can do about it. At a limit, `run` is the one whose
    budget it is, and `more` what would be enough."""
    if kind in LIMITS:
        return f"{waits_for} {raise_it(run, kind, more)}, or --land, or --end"
    why = waits_for.rstrip(".")
    if kind == "auth":
        return f"{why}. Set another API key ({_names(model)}), then run `retinue resume {run}`."
    if kind == "quota":
        return (
            f"{why}. Top up the account, or set the key of another ({_names(model)}), "
            f"then run `retinue resume {run}`."
        )
    return f"{why}. The run retries by itself; to retry now, run `retinue resume {run}`."


def _names(model: str) -> str:
    from retinue.models.providers import PROVIDERS

    links = [link.partition(":")[0].strip() for link in model.split("|")]
    keys = [PROVIDERS[name].keys[0] for name in links if name in PROVIDERS and PROVIDERS[name].keys]
    return " or ".join(dict.fromkeys(keys)) or "in the environment"


def refused(rows: Iterable[Row]) -> Row | None:
    """The first run of a tree that waits because its account is refused, when nothing else of the
    tree moves."""
    from retinue.core.state import Asking, Thinking, Working, account_refusal

    found = None
    for row in rows:
        if account_refusal(row.run):
            found = found or row
        elif isinstance(row.run.state, (Asking, Thinking, Working)):
            return None
    return found


def at_limit(rows: Iterable[Row]) -> Row | None:
    """The first run of a tree that waits for an answer about a limit, when nothing else of the tree
    moves."""
    from retinue.core.state import Ended, Short, Waiting, calls_of

    found = None
    for row in rows:
        state, calls = row.run.state, calls_of(row.run)
        if isinstance(state, Short):
            found = found or (row if state.asks else None)
        elif not isinstance(state, (Ended, Waiting)) or (
            calls is not None and (calls.waits or calls.woken)
        ):
            return None
    return found
