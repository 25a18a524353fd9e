"""The cost of an agent for display: $0 if no model was called, and no figure if a price is
unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from retinue.formats.money import OFFLINE
from retinue.view import format as view_format


@dataclass(frozen=True)
class AgentCost:
    """Of an agent and all below it. `usd` is None where a price is not known; `is_bound` says that
    it is not more than this."""

    tokens: int = 0
    usd: float | None = 0.0
    is_bound: bool = False
    is_offline: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON. What is not known is omitted, so that it is not added up as zero."""
        if self.is_offline:
            return {"tokens": 0, "cost": OFFLINE}
        out: dict[str, Any] = {"tokens": self.tokens, "cost": self.words or "nothing yet"}
        if self.usd is None or self.is_bound:
            out["cost_is_known"] = False
        return out if self.usd is None else {**out, "usd": round(self.usd, 6)}

    @property
    def words(self) -> str:
        """`$0.12`, `18.9k tokens, price not known`, or that no model was called; "" before anything
        is spent."""
        if self.is_offline:
            return OFFLINE
        if not self.tokens:
            return ""
        if self.usd is None:
            return f"{view_format.tokens(self.tokens)} tokens, price not known"
        return view_format.money(self.usd, is_bound=self.is_bound)


def cost_of_end(outcome: dict[str, Any]) -> AgentCost:
    """Of an agent that has ended, which says itself whether its cost is known."""
    tokens, usd = outcome["tree_tokens"], outcome["tree_usd"]
    is_bound, is_known = outcome["tree_usd_estimated"] > 0, not outcome["tree_tokens_unpriced"]
    is_offline = outcome["model_resolved"].startswith("offline/") and is_known and not usd
    return AgentCost(tokens, usd if is_known else None, is_bound, is_offline)


def cost_so_far(model: str, spent: dict[str, Any]) -> AgentCost:
    """Of what an agent of this model has spent, as the host has recorded it: with what of it is
    only a bound, or has no price."""
    tokens, usd = spent.get("tokens", 0), spent.get("usd", 0.0)
    if model.startswith("offline/") and not usd:
        return AgentCost(tokens, is_offline=True)
    is_known = not spent.get("tokens_unpriced", 0)
    return AgentCost(tokens, usd if is_known else None, spent.get("usd_estimated", 0.0) > 0)


def spent_of(spending: dict[str, Any]) -> dict[str, Any]:
    """What a budget says to be spent, with what of it is not a fact."""
    marks = ("tokens_estimated", "usd_estimated", "tokens_unpriced")
    known = {name: spending[name] for name in marks if name in spending}
    return {**spending.get("spent", {}), **known}


def total_cost(costs: Iterable[AgentCost]) -> AgentCost:
    """Of all of them together. One unknown price makes the sum unknown."""
    prices = list(costs)
    paid = [cost for cost in prices if not cost.is_offline]
    amounts = [cost.usd for cost in paid]
    return AgentCost(
        sum(cost.tokens for cost in paid),
        None if None in amounts else sum(amount or 0.0 for amount in amounts),
        any(cost.is_bound for cost in paid),
        bool(prices) and not paid,
    )
