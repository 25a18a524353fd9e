"""What a run may spend, has spent and holds, as people and programs read it."""

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
    now, what is spent, and what is held for calls under way or was given to children.
    `seconds_left` is to its deadline, if it has one. `questions` are the ids of what is asked about
    it."""

    run: str
    limit: Budget
    spent: Spent
    held: Spent
    seconds_left: float | None = None
    questions: tuple[str, ...] = ()


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
    )


def as_spent(amounts: Counts) -> Spent:
    spent = ByDimension(*amounts)
    return Spent(
        tokens=spent.tokens,
        usd=spent.nanos / NANOS_PER_USD,
        turns=spent.turns,
        calls=spent.calls,
    )
