"""The budget account of a run and all runs below it, as a value. Only the ledger changes one."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from retinue.core.cache_figures import Cached
from retinue.core.state import NOTHING, Amounts, four
from retinue.core.values import NANOS_PER_USD, Budget, OnLimit

DIMENSIONS = ("tokens", "usd", "turns", "calls")
Limit = tuple[int | None, int | None, int | None, int | None]
UNLIMITED: Limit = (None, None, None, None)
"""Most accounts have no limit: this one object says so, which is quickly seen and not written out
in their rows."""
Funded = tuple[bool, bool, bool, bool]
UNFUNDED: Funded = (False, False, False, False)


Guess = tuple[int, int, int]
"""Of what was spent: tokens and nano-dollars of which only a bound is known, and tokens whose price
is not known."""
SURE: Guess = (0, 0, 0)
Counts = tuple[int, ...]
"""One for each dimension."""
UNASKED: Counts = (-1, -1, -1, -1)


class Account(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """What one run and its descendants may spend, have spent, and hold, and what prompt caches gave
    them; `guess` is what of `spent` is not known for sure. `asked` are the limits about which a
    person was asked last: one question for each limit. Changed only by the ledger; amounts are
    tuples, so that a copy stays as it is and the collector of cycles has nothing to look at."""

    id: str
    parent: str = ""
    limit: Limit = UNLIMITED
    funded: Funded = UNFUNDED
    spent: Counts = NOTHING
    held: Counts = NOTHING
    reserve: Counts = NOTHING
    closed: bool = False
    below: int = 0
    guess: Guess = SURE
    cache: Cached = Cached()
    on_limit: OnLimit = "land"
    asked: Counts = UNASKED

    def free(self, i: int) -> int | None:
        """What is left in amount `i` for a new hold; None is without limit."""
        limit = self.limit[i]
        return None if limit is None else limit - self.spent[i] - self.held[i] - self.reserve[i]


Chain = tuple[Account, ...]


class Draw(NamedTuple):
    """An account that limits what a run spends, in these amounts. `has_grant`: the run has one,
    below this account, for which a run above may wait."""

    account: Account
    amounts: tuple[int, ...]
    is_own: bool
    has_grant: bool

    def unspent(self, i: int) -> int:
        """What is left of an amount, held or not. The owner's reserve is in what it asks for
        itself."""
        account, limit = self.account, self.account.limit[i]
        assert limit is not None
        return limit - account.spent[i] - (0 if self.is_own else account.reserve[i])


def funded(account: Account, add: Amounts) -> Amounts:
    """What of it is taken from those above."""
    return four(more if funded else 0 for more, funded in zip(add, account.funded, strict=True))


def limits_of(budget: Budget) -> Limit:
    usd = None if budget.usd is None else round(budget.usd * NANOS_PER_USD)
    limit = (budget.tokens, usd, budget.turns, budget.calls)
    return UNLIMITED if limit == UNLIMITED else limit
