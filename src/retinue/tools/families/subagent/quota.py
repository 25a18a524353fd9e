"""Limits that all children of a kind in one tree share: starts, tokens, time. Counted from the
record, so that a restart forgets nothing; what was granted a moment ago and is not on record yet is
remembered here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from retinue.core.state import RunRecord, ending_of
from retinue.core.values import Budget
from retinue.tools.base import Context
from retinue.tools.families.base import CallComplaint
from retinue.tools.families.subagent.quota_usage import (
    QuotaUsage,
    askers_of,
    charges_of,
    is_answered,
    policy_of,
    share_of,
    top_of,
    tree_of,
    turn_of,
)


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


@dataclass(frozen=True, slots=True)
class _Grant:
    """What one child of a call was given, and is perhaps not on record with."""

    child: str
    tokens: int
    context: Context


class Quotas:
    """The quota of every tree that `tools` start children in.

    Tokens are granted, not only counted: a child gets its part of what is left as its own budget,
    so that children that run at the same time cannot spend the same rest. A child of a child draws
    on its parent's grant.

    From the end of `take` to the engine's queue nothing is awaited, and the queue is in order: a
    later request finds a grant here, or its child in the store."""

    def __init__(self, quota: Quota, tools: tuple[str, ...]) -> None:
        self._quota, self._tools = quota, tools
        self._grants: dict[str, _Grant] = {}
        self._readers = 0

    async def check(
        self, context: Context, complaint: Callable[[str], CallComplaint], n_requested: int = 1
    ) -> None:
        """Complain when nothing is left, before anything else is looked at. `asked`: how many are
        wanted."""
        if self._quota.is_open:
            return
        try:
            self._left(context, await self._used(context), 1, n_requested)
        except QuotaSpent as spent:
            raise complaint(str(spent)) from None

    async def take(self, context: Context, n: int) -> dict[str, Any]:
        """What the order of each of `n` new children has to say; `QuotaSpent` when there is not
        enough."""
        if self._quota.is_open:
            return {}
        askers = askers_of(context, await turn_of(context), self._tools)
        used = await self._used(context)
        tokens, timeout_ms = self._left(context, used, n)
        fields: dict[str, Any] = {}
        if timeout_ms is not None:
            fields = {"timeout_ms": timeout_ms, "timeout_from": "created"}
        share = 0
        if tokens is not None and not used.nested:
            share = share_of(context, used, tokens, n * len(askers - used.taken | {context.index}))
            if share < 1:
                raise QuotaSpent(f"{tokens} tokens left, too few for {n} more")
            fields |= {"budget": Budget(tokens=share), "budget_share": policy_of(context)}
        for item in range(n):
            child = context.child_id(item)
            self._grants[child] = _Grant(child, share, context)
        return fields

    def settled(self, children: Iterable[str]) -> None:
        """These are on record for good. (A reader may have begun before they were.)"""
        for child in () if self._readers else children:
            self._grants.pop(child, None)

    def _left(
        self, context: Context, used: QuotaUsage, n: int, n_requested: int = 0
    ) -> tuple[int | None, int | None]:
        quota = self._quota
        if quota.executions is not None and used.executions + n > quota.executions:
            more = f"{n_requested or n} more requested"
            raise QuotaSpent(f"{used.executions} of {quota.executions} executions are used, {more}")
        tokens = None if quota.tokens is None else quota.tokens - used.tokens
        if tokens is not None and tokens <= 0 and not used.nested:
            raise QuotaSpent(f"{used.tokens} of {quota.tokens} tokens are used or granted")
        if quota.seconds is None:
            return tokens, None
        spent = 0 if used.first_at is None else max(0, context.called_at - used.first_at)
        milliseconds = round(quota.seconds * 1000) - spent
        if milliseconds <= 0:
            raise QuotaSpent(f"{spent / 1000:g} of {quota.seconds:g} seconds are used")
        return tokens, milliseconds

    async def _used(self, context: Context) -> QuotaUsage:
        self._readers += 1
        try:
            answered = await self._answered(context)
            tree = await tree_of(context)
        finally:
            self._readers -= 1
        ours = {id for id, record in tree.items() if self._is_ours(record)}
        open_grants = self._open_grants(context, answered, tree)
        self.settled(ours)
        starts = [tree[id][0].created_at for id in ours] + [
            g.context.called_at for g in open_grants
        ]
        return QuotaUsage(
            executions=len(ours) + len(open_grants),
            first_at=min(starts, default=None),
            charges=charges_of(tree, ours)
            + [(f"{g.context.spec.path}/", g.tokens) for g in open_grants],
            nested=top_of(context.run_id, tree, ours) is not None,
            taken=self._taken(context, tree, ours, open_grants),
        )

    def _is_ours(self, record: RunRecord) -> bool:
        slot = record[0].parent_call
        return slot is not None and slot.tool in self._tools

    async def _answered(self, context: Context) -> set[str]:
        """The calls with a grant that have their result. Asked before the record: who is not there
        then was refused."""
        callers = {g.context.key: g.context for g in self._granted(context)}
        return {
            key for key, one in callers.items() if is_answered(one, await turn_of(context, one))
        }

    def _granted(self, context: Context) -> list[_Grant]:
        """The grants of the calling run's tree."""
        return [g for g in self._grants.values() if g.context.spec.root == context.spec.root]

    def _open_grants(
        self, context: Context, answered: set[str], tree: dict[str, RunRecord]
    ) -> list[_Grant]:
        """Grants whose children are still to come on record. Those that the machine refused are
        dropped, and those of this same call: an earlier process was given them, and died."""
        out = []
        for grant in self._granted(context):
            key, parent = grant.context.key, tree.get(grant.context.run_id)
            if grant.child in tree:
                continue
            if (
                key in answered
                or key == context.key
                or (parent is not None and ending_of(parent[1]) is not None)
            ):
                del self._grants[grant.child]
            else:
                out.append(grant)
        return out

    @staticmethod
    def _taken(
        context: Context, tree: dict[str, RunRecord], ours: set[str], open_grants: list[_Grant]
    ) -> set[int]:
        """The calls of the context's turn that have got their part."""
        turn = context.row.turn
        numbers = {
            g.context.index
            for g in open_grants
            if g.context.run_id == context.run_id and g.context.row.turn == turn
        }
        slots = [tree[id][0].parent_call for id in ours if tree[id][0].parent == context.run_id]
        return numbers | {slot.index for slot in slots if slot is not None and slot.turn == turn}
