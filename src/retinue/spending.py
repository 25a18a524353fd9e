"""A run's budget for people and programs: its limits, what was spent, and what is reserved."""

from __future__ import annotations

from retinue.core.account import Account, Counts
from retinue.core.limit_questions import budget_of
from retinue.core.state import ByDimension, RunRecord
from retinue.core.values import NANOS_PER_USD, Budget, Value


class Spent(Value):
    """So much of each amount that a budget limits."""

    tokens: int = 0
    usd: float = 0.0
    turns: int = 0
    calls: int = 0


class Spending(Value):
    """The budget of a run at this moment, for itself and all runs below it: its limits as they are
    now, what is spent, and what is held for calls under way or was given to children. Of
    `tokens_estimated` and `usd_estimated`, which are in `spent`, it is only known that they are not
    more; the price of `tokens_unpriced` is not known, and is not in it. `seconds_left` is to its
    deadline, if it has one. `questions` are the ids of what is asked about it."""

    run: str
    limit: Budget
    spent: Spent
    held: Spent
    seconds_left: float | None = None
    questions: tuple[str, ...] = ()
    tokens_estimated: int = 0
    usd_estimated: float = 0.0
    tokens_unpriced: int = 0

    @property
    def cost_is_known(self) -> bool:
        """Whether the dollars that are spent are a fact, and all there are."""
        return not (self.usd_estimated or self.tokens_unpriced)


def spending_of(row: RunRecord, account: Account, now: int, questions: tuple[str, ...]) -> Spending:
    """The budget of a run at this moment."""
    deadline = row.run.deadline
    return Spending(
        run=row.spec.id,
        limit=budget_of(row.spec, account),
        spent=as_spent(account.spent),
        held=as_spent(account.held),
        seconds_left=None if deadline is None else max(0, deadline - now) / 1000,
        questions=questions,
        tokens_estimated=account.guess[0],
        usd_estimated=account.guess[1] / NANOS_PER_USD,
        tokens_unpriced=account.guess[2],
    )


def as_spent(amounts: Counts) -> Spent:
    spent = ByDimension(*amounts)
    return Spent(
        tokens=spent.tokens,
        usd=spent.nanos / NANOS_PER_USD,
        turns=spent.turns,
        calls=spent.calls,
    )
