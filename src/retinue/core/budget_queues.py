"""Queues for budget that other runs have reserved: first come, first served, one queue per
account.

A ticket says which run came first. A run keeps it until the call is made, so a run that has to wait
a second time gets its old place. Two lines form at an account. Runs with a grant of their own do
not wait for other grants (see `ledger`), so they do not queue after runs that do; the others queue
after all runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

LATEST = 1 << 62
"""The ticket of a run that is not in the queue yet."""
Spot = tuple[str, bool]
"""A line: the account, and whether it is the one for runs with grants."""


class BudgetQueues:
    def __init__(self) -> None:
        self.by_spot: dict[Spot, OrderedDict[str, int]] = {}
        self._spots: dict[str, list[Spot]] = {}
        self.eased: dict[str, None] = {}

    def __contains__(self, id: object) -> bool:
        return id in self._spots

    def clear(self) -> None:
        self.by_spot.clear()
        self._spots.clear()
        self.eased.clear()

    def stand(self, id: str, at: Iterable[tuple[Spot, int]]) -> None:
        """Join these queues, each at the place that the ticket gives."""
        spots = self._spots.setdefault(id, [])
        for spot, ticket in at:
            line = self.by_spot.setdefault(spot, OrderedDict())
            is_last = not line or next(reversed(line.values())) < ticket
            line[id] = ticket
            spots.append(spot)
            if not is_last:
                self.by_spot[spot] = OrderedDict(sorted(line.items(), key=lambda item: item[1]))

    def leave(self, id: str) -> None:
        """Leave the queue; the next run may be the first now."""
        for spot in self._spots.pop(id, ()):
            line = self.by_spot[spot]
            del line[id]
            if not line:
                del self.by_spot[spot]
            self.ease(spot[0])

    def first(self, account: str, *, has_grant: bool) -> tuple[str, int] | None:
        """Who is the first in one of the lines, and its ticket."""
        line = self.by_spot.get((account, has_grant))
        return next(iter(line.items())) if line else None

    def ease(self, account: str) -> None:
        """Something has changed at an account: the first runs in its queue may continue."""
        if self.by_spot and ((account, True) in self.by_spot or (account, False) in self.by_spot):
            self.eased[account] = None

    def changed(self) -> list[str] | None:
        """The first ones at an account that has changed; None when there is no such account."""
        if not self.eased:
            return None
        account, _ = self.eased.popitem()
        firsts = (self.first(account, has_grant=has_grant) for has_grant in (True, False))
        return [first[0] for first in firsts if first is not None]
