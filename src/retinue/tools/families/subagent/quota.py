"""What all children of a kind in one tree may use together: starts, tokens, time. Counted from the
record, so that a restart forgets nothing; what was granted a moment ago and is not on record yet is
remembered here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from retinue.core.messages import Assistant, Message, Result
from retinue.core.state import Working, ending_of
from retinue.core.values import Budget
from retinue.tools.base import Caller, Kin
from retinue.tools.families.base import CallComplaint, looking


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
    caller: Caller


@dataclass(slots=True)
class _Used:
    """What is gone. `charges` are tokens by the path of whoever they were granted to; what a child
    of a child takes is part of its parent's. `nested`: the caller lives on such a grant itself."""

    executions: int = 0
    first_at: int | None = None
    charges: list[tuple[str, int]] = field(default_factory=list)
    nested: bool = False
    taken: set[int] = field(default_factory=set)

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self.charges)

    def below(self, path: str) -> int:
        return sum(tokens for at, tokens in self.charges if at.startswith(f"{path}/"))


class Quotas:
    """The quota of every tree that `tools` start children in.

    Tokens are granted, not only counted: a child gets its part of what is left as its own budget,
    so that children that run at the same time cannot spend the same rest. A child of a child draws
    on its parent's grant.

    From the end of `take` to the engine's queue nothing is awaited, and the queue is in order:
    whoever asks later finds a grant here, or its child on record."""

    def __init__(self, quota: Quota, tools: tuple[str, ...]) -> None:
        self._quota, self._tools = quota, tools
        self._grants: dict[str, _Grant] = {}
        self._readers = 0

    async def check(
        self, caller: Caller, complaint: Callable[[str], CallComplaint], asked: int = 1
    ) -> None:
        """Complain when nothing is left, before anything else is looked at. `asked`: how many are
        wanted."""
        if self._quota.is_open:
            return
        try:
            self._left(caller, await self._used(caller), 1, asked)
        except QuotaSpent as spent:
            raise complaint(str(spent)) from None

    async def take(self, caller: Caller, n: int) -> dict[str, Any]:
        """What the order of each of `n` new children has to say; `QuotaSpent` when there is not
        enough."""
        if self._quota.is_open:
            return {}
        askers = _askers(caller, await _turn(caller), self._tools)
        used = await self._used(caller)
        tokens, timeout_ms = self._left(caller, used, n)
        fields: dict[str, Any] = {}
        if timeout_ms is not None:
            fields = {"timeout_ms": timeout_ms, "clock": "created"}
        share = 0
        if tokens is not None and not used.nested:
            share = _share(caller, used, tokens, n * len(askers - used.taken | {caller.index}))
            if share < 1:
                raise QuotaSpent(f"{tokens} tokens are left, too few for {n} more")
            fields |= {"budget": Budget(tokens=share), "share": _policy(caller)}
        for item in range(n):
            child = caller.child_id(item)
            self._grants[child] = _Grant(child, share, caller)
        return fields

    def settled(self, children: Iterable[str]) -> None:
        """These are on record for good. (Whoever is reading may have begun before they were.)"""
        for child in () if self._readers else children:
            self._grants.pop(child, None)

    def _left(
        self, caller: Caller, used: _Used, n: int, asked: int = 0
    ) -> tuple[int | None, int | None]:
        quota = self._quota
        if quota.executions is not None and used.executions + n > quota.executions:
            more = f"{asked or n} more asked for"
            raise QuotaSpent(f"{used.executions} of {quota.executions} executions are used, {more}")
        tokens = None if quota.tokens is None else quota.tokens - used.tokens
        if tokens is not None and tokens <= 0 and not used.nested:
            raise QuotaSpent(f"{used.tokens} of {quota.tokens} tokens are used or granted")
        if quota.seconds is None:
            return tokens, None
        spent = 0 if used.first_at is None else max(0, caller.at - used.first_at)
        left = round(quota.seconds * 1000) - spent
        if left <= 0:
            raise QuotaSpent(f"{spent / 1000:g} of {quota.seconds:g} seconds are used")
        return tokens, left

    async def _used(self, caller: Caller) -> _Used:
        self._readers += 1
        try:
            answered = await self._answered(caller)
            tree = await _tree(caller)
        finally:
            self._readers -= 1
        ours = {id for id, kin in tree.items() if self._is_ours(kin)}
        open_grants = self._open_grants(caller, answered, tree)
        self.settled(ours)
        starts = [tree[id][0].created_at for id in ours] + [g.caller.at for g in open_grants]
        return _Used(
            executions=len(ours) + len(open_grants),
            first_at=min(starts, default=None),
            charges=_charges(tree, ours)
            + [(f"{g.caller.spec.path}/", g.tokens) for g in open_grants],
            nested=_top(caller.id, tree, ours) is not None,
            taken=self._taken(caller, tree, ours, open_grants),
        )

    def _is_ours(self, kin: Kin) -> bool:
        slot = kin[0].slot
        return slot is not None and slot.tool in self._tools

    async def _answered(self, caller: Caller) -> set[str]:
        """The calls with a grant that have their result. Asked before the record: who is not there
        then was refused."""
        callers = {g.caller.key: g.caller for g in self._granted(caller)}
        return {key for key, one in callers.items() if _is_answered(one, await _turn(caller, one))}

    def _granted(self, caller: Caller) -> list[_Grant]:
        """The grants of the caller's tree."""
        return [g for g in self._grants.values() if g.caller.spec.root == caller.spec.root]

    def _open_grants(
        self, caller: Caller, answered: set[str], tree: dict[str, Kin]
    ) -> list[_Grant]:
        """Grants whose children are still to come on record. Those that the machine refused are
        dropped, and those of this same call: an earlier process was given them, and died."""
        out = []
        for grant in self._granted(caller):
            key, parent = grant.caller.key, tree.get(grant.caller.id)
            if grant.child in tree:
                continue
            if (
                key in answered
                or key == caller.key
                or (parent is not None and ending_of(parent[1]) is not None)
            ):
                del self._grants[grant.child]
            else:
                out.append(grant)
        return out

    @staticmethod
    def _taken(
        caller: Caller, tree: dict[str, Kin], ours: set[str], open_grants: list[_Grant]
    ) -> set[int]:
        """The calls of the caller's turn that have got their part."""
        turn = caller.run.turn
        taken = {
            g.caller.index
            for g in open_grants
            if g.caller.id == caller.id and g.caller.run.turn == turn
        }
        slots = [tree[id][0].slot for id in ours if tree[id][0].parent == caller.id]
        return taken | {slot.index for slot in slots if slot is not None and slot.turn == turn}


async def _tree(caller: Caller) -> dict[str, Kin]:
    """Everybody below the caller's root."""
    out: dict[str, Kin] = {}
    todo = [caller.spec.root]
    while todo:
        for spec, run in await looking(caller).children(todo.pop()):
            out[spec.id] = (spec, run)
            if run.n_children:
                todo.append(spec.id)
    return out


async def _turn(caller: Caller, of: Caller | None = None) -> Sequence[Message]:
    """The reply that a call stands in, and what has come after it."""
    of = of or caller
    state = of.run.state
    if not isinstance(state, Working):
        return ()
    calls = state.calls
    span = replace(of.run, start=calls.message, length=of.run.length + calls.count + 1)
    return await looking(caller).messages(of.spec, span)


def _is_answered(caller: Caller, turn: Sequence[Message]) -> bool:
    """Whether a call is closed: it has a result, or its run has gone on without one."""
    if not turn or not isinstance(turn[0], Assistant):
        return False
    results = [m for m in turn[1:] if isinstance(m, Result)]
    if len(results) < len(turn) - 1:
        return True
    same = sum(c.id == caller.call_id for c in turn[0].calls)
    return sum(r.call_id == caller.call_id for r in results) >= same


def _askers(caller: Caller, turn: Sequence[Message], tools: tuple[str, ...]) -> set[int]:
    """The calls of the caller's turn that may want a part: what is left is divided among them."""
    state = caller.run.state
    if not turn or not isinstance(turn[0], Assistant) or not isinstance(state, Working):
        return {caller.index}
    running = state.calls.tools
    return {i for i, call in enumerate(turn[0].calls) if call.name in tools and running >> i & 1}


def _share(caller: Caller, used: _Used, tokens: int, parts: int) -> int:
    """An equal part of what is left, also of what the caller's own budget leaves as far as it can
    be seen from here."""
    own = caller.spec.order.budget.tokens
    if own is not None:
        tokens = min(
            tokens, max(parts, own - caller.run.usage.tokens - used.below(caller.spec.path))
        )
    return tokens // parts


def _policy(caller: Caller) -> str:
    """`equal` cuts a grant to what the caller has really free, where a plain budget would be
    refused. It divides every amount that has a limit; amounts other than tokens are better drawn
    from one pool."""
    budget = caller.spec.order.budget
    return "equal" if (budget.usd, budget.turns, budget.calls) == (None, None, None) else ""


def _top(id: str, tree: dict[str, Kin], ours: set[str]) -> str | None:
    """The highest of ours at or above a run: whoever got the grant that it lives on."""
    top = None
    while (kin := tree.get(id)) is not None:
        top = id if id in ours else top
        id = kin[0].parent
    return top


def _charges(tree: dict[str, Kin], ours: set[str]) -> list[tuple[str, int]]:
    """What each grant has cost: all that was spent on it, or the whole of it while it may still be
    spent."""
    spent: dict[str, int] = {}
    for id, (_, run) in tree.items():
        top = _top(id, tree, ours)
        if top is not None:
            spent[top] = spent.get(top, 0) + run.usage.tokens
    out = []
    for id, tokens in spent.items():
        spec, run = tree[id]
        granted = 0 if ending_of(run) is not None else spec.order.budget.tokens or 0
        out.append((spec.path, max(tokens, granted)))
    return out
