"""Who holds what. An account covers a run and everything below it; a hold is taken from the run and all its ancestors
before anything is spent, and settled after, so that no fan-out can spend one unit more than the tree was given.

Four amounts are kept side by side: tokens, nano-dollars, turns, tool calls. (Time is not divided: it is a deadline that
children inherit.) An account is *funded* in an amount when its limit was taken from its parent at spawn; then the
parents already hold it and a hold stops there. `reserve` is what only the owner's last turn may touch.
"""

from __future__ import annotations

import msgspec

from retinue.core.state import NOTHING, Amounts
from retinue.core.values import NANOS_PER_USD, Budget

DIMENSIONS = ("tokens", "usd", "turns", "calls")
Limit = tuple[int | None, int | None, int | None, int | None]
UNLIMITED: Limit = (None, None, None, None)
_RANGE = range(4)


class Account(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """What one run and its descendants may spend, have spent, and hold. Changed only by this module."""

    id: str
    parent: str = ""
    limit: Limit = UNLIMITED
    funded: tuple[bool, bool, bool, bool] = (False, False, False, False)
    spent: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])
    held: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])
    reserve: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])
    closed: bool = False
    below: int = 0

    def free(self, i: int, *, final: bool = False) -> int | None:
        """What is left in amount `i` for a new hold; None is without limit. Only the owner's last turn has `final`."""
        limit = self.limit[i]
        if limit is None:
            return None
        return limit - self.spent[i] - self.held[i] - (0 if final else self.reserve[i])


Chain = tuple[Account, ...]


class Ledger:
    """All accounts that are open, or closed with open ones below."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.touched: dict[str, Account] = {}
        self._chains: dict[str, Chain] = {}

    def open(self, id: str, parent: str, limit: Limit, funded: tuple[bool, bool, bool, bool]) -> None:
        account = Account(id=id, parent=parent, limit=limit, funded=funded)
        self.accounts[id] = self.touched[id] = account
        self._chains.pop(id, None)
        above = self.accounts.get(parent)
        if above is not None:
            above.below += 1
            self.touched[parent] = above

    def chain(self, id: str) -> Chain:
        """The account of `id` and of everybody above it; the order never changes while they are open."""
        chain = self._chains.get(id)
        if chain is None:
            account = self.accounts.get(id)
            chain = () if account is None else (account, *self.chain(account.parent))
            self._chains[id] = chain
        return chain

    def lacks(self, id: str, need: Amounts, *, final: bool = False) -> str | None:
        """The name of the first amount that `id` or an ancestor cannot cover, or None."""
        chain = self.chain(id)
        for i, amount in enumerate(need):
            if not amount:
                continue
            for n, account in enumerate(chain):
                free = account.free(i, final=final and n == 0)
                if free is not None and free < amount:
                    return DIMENSIONS[i]
                if account.funded[i]:
                    break
        return None

    def hold(self, id: str, need: Amounts) -> None:
        """Take `need` from `id` and its ancestors. Ask `lacks` first."""
        self._move(self.chain(id), need, NOTHING, 1)

    def release(self, id: str, need: Amounts) -> None:
        self._move(self.chain(id), need, NOTHING, -1)

    def settle(self, id: str, hold: Amounts, actual: Amounts) -> None:
        """Turn a hold into what was really spent; the rest goes back at once."""
        self._move(self.chain(id), hold, actual, -1)

    def _move(self, chain: Chain, hold: Amounts, spent: Amounts, sign: int) -> None:
        """Up to the first funded account the hold moves; above it the grant shrinks by what was spent."""
        moved = [i for i in _RANGE if hold[i] or spent[i]]
        if not moved:
            return
        touched = self.touched
        above = [False, False, False, False]
        for account in chain:
            held, total, funded = account.held, account.spent, account.funded
            for i in moved:
                if above[i]:
                    held[i] -= spent[i]
                else:
                    held[i] += sign * hold[i]
                    above[i] = funded[i]
                total[i] += spent[i]
            touched[account.id] = account

    def keep(self, id: str, reserve: Amounts) -> None:
        """Set aside what the owner's last turn would cost."""
        account = self.accounts[id]
        kept = [r if limit is not None else 0 for r, limit in zip(reserve, account.limit, strict=True)]
        if kept != account.reserve:
            account.reserve = kept
            self.touched[id] = account

    def close(self, id: str) -> None:
        """The run ended. While something below it is open its account stays, as the pool of those that outlive it."""
        account = self.accounts[id]
        account.reserve = [0, 0, 0, 0]
        account.closed = True
        self.touched[id] = account
        while account.closed and account.below == 0:
            self._give_back(account)
            del self.accounts[account.id]
            self._chains.pop(account.id, None)
            parent = self.accounts.get(account.parent)
            if parent is None:
                return
            parent.below -= 1
            self.touched[parent.id] = account = parent

    def _give_back(self, account: Account) -> None:
        left = [0, 0, 0, 0]
        for i, limit in enumerate(account.limit):
            if account.funded[i] and limit is not None:
                left[i] = limit - account.spent[i]
        if any(left):
            self.release(account.parent, (left[0], left[1], left[2], left[3]))


def limits_of(budget: Budget) -> Limit:
    usd = None if budget.usd is None else round(budget.usd * NANOS_PER_USD)
    return (budget.tokens, usd, budget.turns, budget.calls)


def shares(free: Limit, policy: str, weights: list[int]) -> list[Limit]:
    """Divide what a parent has free among the children of one order.

    `equal`: the same to each. `remaining`: all of it to the first, nothing to those after it. `proportional`: by
    weight. `fixed:N`: N tokens each. Unlimited amounts stay unlimited; what does not divide stays with the parent.
    """
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
    raise ValueError(f"unknown share {policy!r}; use equal, remaining, proportional or fixed:<tokens>")


def _each(free: Limit, part: int, whole: int) -> Limit:
    a, b, c, d = (None if f is None else max(0, f) * part // whole for f in free)
    return (a, b, c, d)
