"""What a tree of runs may have cost once all calls that are under way are over."""

from __future__ import annotations

from retinue.core.ledger import Ledger


def exposure(ledger: Ledger, root: str) -> tuple[int, int]:
    """Tokens and nano-dollars: what is spent, and what is held for calls. What was granted to
    sub-agents and is held by no call is not counted: it may come back."""
    account = ledger.accounts.get(root)
    if account is None:
        return 0, 0
    tokens, nanos = (_at_most(ledger, root, i) for i in (0, 1))
    return account.spent[0] + tokens, account.spent[1] + nanos


def _at_most(ledger: Ledger, root: str, i: int) -> int:
    """What calls hold of amount `i`. An account holds what its grants have left, in the place of
    what is held below them."""
    total = ledger.accounts[root].held[i]
    for account in ledger.accounts.values():
        limit = account.limit[i]
        if account.id != root and account.funded[i] and limit is not None:
            total += account.held[i] - (limit - account.spent[i])
    return total


def loan(rest: int, need: int, before: int, n_trees: int) -> int | None:
    """The loan of a tree that may cost `need`, out of what its tenant has left for it: a little
    more than it needs, so that it need not ask for each call, but no more than its part of what
    remains. None: there is not enough."""
    if need > rest:
        return None
    ahead = min((rest - need) // (2 * (n_trees + 1)), 8 * max(0, need - before))
    return need + ahead
