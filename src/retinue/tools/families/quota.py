"""What all children of a kind in one tree may use together: starts, tokens, time. Counted from the record, so that a
restart forgets nothing; what was granted a moment ago and is not on record yet is remembered here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from retinue.core.state import Working
from retinue.core.values import Budget
from retinue.tools.base import Caller, Kin
from retinue.tools.families.base import Complaint, looking
from retinue.tools.families.states import ending_of


class QuotaSpent(Exception):
    """Which quota is spent, and how far."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Amounts of None are no limit."""

    executions: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    @property
    def is_open(self) -> bool:
        return self.executions is None and self.tokens is None and self.seconds is None


@dataclass(slots=True)
class _Used:
    executions: int = 0
    tokens: int = 0
    first_at: int | None = None


class Quotas:
    """The quota of every tree that `tools` start children in.

    Tokens are granted, not only counted: a child gets its part of what is left as its own budget, so that children that
    run at the same time cannot spend the same rest. A child of a child draws on its parent's grant.
    """

    def __init__(self, quota: Quota, tools: tuple[str, ...]) -> None:
        self._quota, self._tools = quota, tools
        self._fresh: dict[str, dict[str, int]] = {}

    async def check(self, caller: Caller, complaint: Callable[[str], Complaint]) -> None:
        """Complain when nothing is left, before anything else is looked at."""
        if self._quota.is_open:
            return
        try:
            self._left(caller, await self._used(caller), 1)
        except QuotaSpent as spent:
            raise complaint(str(spent)) from None

    async def take(self, caller: Caller, n: int) -> tuple[Budget, int | None]:
        """The budget of each of `n` new children, and their time limit; `QuotaSpent` when there is not enough."""
        if self._quota.is_open:
            return Budget(), None
        used = await self._used(caller)
        tokens, timeout_ms = self._left(caller, used, n)
        nested = self._is_one_of_us(caller)
        share = None if tokens is None or nested else max(1, tokens // max(n, self._callers(caller)))
        fresh = self._fresh.setdefault(caller.spec.root, {})
        for item in range(n):
            fresh[caller.child_id(item)] = share or 0
        return Budget(tokens=share), timeout_ms

    def _left(self, caller: Caller, used: _Used, n: int) -> tuple[int | None, int | None]:
        quota = self._quota
        if quota.executions is not None and used.executions + n > quota.executions:
            raise QuotaSpent(f"{used.executions} of {quota.executions} executions are used, {n} more asked for")
        tokens = None if quota.tokens is None else quota.tokens - used.tokens
        if tokens is not None and tokens <= 0 and not self._is_one_of_us(caller):
            raise QuotaSpent(f"{used.tokens} of {quota.tokens} tokens are used or granted")
        if quota.seconds is None:
            return tokens, None
        spent = 0 if used.first_at is None else max(0, caller.at - used.first_at)
        left = round(quota.seconds * 1000) - spent
        if left <= 0:
            raise QuotaSpent(f"{spent / 1000:.0f} of {quota.seconds:.0f} seconds are used")
        return tokens, left

    def _is_one_of_us(self, caller: Caller) -> bool:
        slot = caller.spec.slot
        return slot is not None and slot.tool in self._tools

    @staticmethod
    def _callers(caller: Caller) -> int:
        """How many calls of this turn may want a share: what is left is divided among them."""
        state = caller.run.state
        return state.calls.tools.bit_count() if isinstance(state, Working) else 1

    async def _used(self, caller: Caller) -> _Used:
        root = caller.spec.root
        rows = [k for k in await looking(caller).started(_began(root)) if k[0].root == root]
        ours = [k for k in rows if k[0].slot is not None and k[0].slot.tool in self._tools]
        fresh = self._fresh.get(root, {})
        for spec, _ in ours:
            fresh.pop(spec.id, None)
        used = _Used(executions=len(ours) + len(fresh), tokens=sum(fresh.values()))
        if ours:
            used.first_at = min(spec.created_at for spec, _ in ours)
        used.tokens += sum(self._charged(kin, ours) for kin in ours if not self._is_below(kin, ours))
        return used

    def _charged(self, kin: Kin, ours: list[Kin]) -> int:
        """What a child and those below it have spent, or what it was granted while it may still spend it."""
        spec, run = kin
        spent = sum(r.usage.tokens for s, r in ours if f"{s.path}/".startswith(f"{spec.path}/"))
        granted = spec.order.budget.tokens or 0
        return spent if ending_of(run) is not None else max(spent, granted)

    @staticmethod
    def _is_below(kin: Kin, ours: list[Kin]) -> bool:
        path = kin[0].path
        return any(s.path != path and path.startswith(f"{s.path}/") for s, _ in ours)


def _began(root: str) -> int:
    """When a run was asked for: its id begins with the time. An id that was given by hand may not."""
    try:
        return int(root.replace("-", "")[:12], 16) if len(root) == 36 else 0
    except ValueError:
        return 0
