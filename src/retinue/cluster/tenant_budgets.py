"""What all trees of one tenant, a user, may spend together, on whatever nodes they are driven.

The tenant's budget is a row, and each of its trees gets a part of it as a loan before a call
leaves: the loan always covers the most that the tree may have cost. A loan belongs to the tree, not
to its worker: a tree that is taken over keeps it. What a tree has spent is written in its own
commits; the rest comes back when the tree is released, or has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from retinue.cluster.ownership import Pool
from retinue.core.budget_shares import written
from retinue.core.exposure import loan
from retinue.core.messages import ModelReply
from retinue.core.values import NANOS_PER_USD, ProviderTrouble, Usage
from retinue.errors import ModelUnavailable
from retinue.models.base import Model, ModelRequest
from retinue.store.postgres.connections import connect

KIND = "tenant_budget"
LOOK_SECONDS = 1.0
"""A budget that is set for a tenant who had none holds for new calls after so long."""

LIMITS = "select tokens, nanos, spent_tokens, spent_nanos from budgets where tenant = %s for update"
ENDED = """
with ended as (
  delete from loans l using trees t
  where l.tenant = %(tenant)s and t.root = l.root and not t.is_open and t.owner is null
  returning spent_tokens, spent_nanos)
update budgets set
  spent_tokens = spent_tokens + (select coalesce(sum(spent_tokens), 0) from ended),
  spent_nanos = spent_nanos + (select coalesce(sum(spent_nanos), 0) from ended)
where tenant = %(tenant)s"""
OTHERS = """
select coalesce(sum(greatest(tokens, spent_tokens)), 0)::bigint,
  coalesce(sum(greatest(nanos, spent_nanos)), 0)::bigint, count(*)
from loans where tenant = %s and root <> %s"""
MINE = "select tokens, nanos from loans where root = %s"
LEND = """
insert into loans (root, tenant, tokens, nanos) values (%s, %s, %s, %s)
on conflict (root) do update set tokens = excluded.tokens, nanos = excluded.nanos"""
# The ledger counts a call that was interrupted as sent. A call without a loan was not sent.
SPENT = """
update loans set spent_tokens = least(%s, tokens), spent_nanos = least(%s, nanos)
where root = %s"""
SET = """
insert into budgets (tenant, tokens, nanos) values (%s, %s, %s)
on conflict (tenant) do update set tokens = excluded.tokens, nanos = excluded.nanos"""
SHOW = """
select b.tenant, b.tokens, b.nanos,
  (b.spent_tokens + coalesce(sum(l.spent_tokens), 0))::bigint,
  (b.spent_nanos + coalesce(sum(l.spent_nanos), 0))::bigint
from budgets b left join loans l on l.tenant = b.tenant
group by b.tenant order by b.tenant"""
USED_UP = (
    "The budget of {tenant} is used up: of {limit}, {left} are left, and the next call may cost "
    "{need}. To raise it: retinue cluster budget {tenant}"
)


class TenantLine(NamedTuple):
    """The budget of a tenant and what is spent of it; None: without a limit."""

    tenant: str
    tokens: int | None
    usd: float | None
    spent_tokens: int
    spent_usd: float


def set_budget(url: str, tenant: str, tokens: int | None, usd: float | None) -> None:
    """What the trees of a tenant may spend from now on, in all."""
    nanos = None if usd is None else round(usd * NANOS_PER_USD)
    with connect(url) as db:
        db.execute(SET, (tenant, tokens, nanos))


def remove_budget(url: str, tenant: str) -> None:
    """The trees of a tenant may spend what they like; what was spent until now is forgotten."""
    with connect(url) as db, db.transaction():
        db.execute("delete from budgets where tenant = %s", (tenant,))
        db.execute("delete from loans where tenant = %s", (tenant,))


def tenant_budgets(url: str) -> tuple[TenantLine, ...]:
    with connect(url) as db:
        rows: list[Any] = db.execute(SHOW).fetchall()
    return tuple(
        TenantLine(
            name,
            tokens,
            None if nanos is None else nanos / NANOS_PER_USD,
            spent,
            spent_nanos / NANOS_PER_USD,
        )
        for name, tokens, nanos, spent, spent_nanos in rows
    )


class TenantAllowance:
    """What one tree may spend of its tenant's budget. `exposure` is what it may have cost at
    most."""

    def __init__(self, pool: Pool, root: str, tenant: str) -> None:
        self._pool, self._root, self._tenant = pool, root, tenant
        self.exposure: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._loan = (0, 0)
        self._free_until = 0.0
        self._asking = asyncio.Lock()

    async def cover(self) -> None:
        """Return when all calls that are under way are paid for; otherwise raise
        `ModelUnavailable`."""
        async with self._asking:
            need = self.exposure()
            now = asyncio.get_running_loop().time()
            if now >= self._free_until and not _covers(self._loan, need):
                await self._borrow(need, now)

    async def _borrow(self, need: tuple[int, int], now: float) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            budget = await (await connection.execute(LIMITS, (self._tenant,))).fetchone()
            if budget is None:
                self._free_until = now + LOOK_SECONDS
                return
            await connection.execute(ENDED, {"tenant": self._tenant})
            budget = await (await connection.execute(LIMITS, (self._tenant,))).fetchone()
            others = await (await connection.execute(OTHERS, (self._tenant, self._root))).fetchone()
            mine = await (await connection.execute(MINE, (self._root,))).fetchone()
            assert budget is not None and others is not None
            before = (0, 0) if mine is None else (mine[0], mine[1])
            if mine is None or not _covers(before, need):
                parts = [
                    self._part(
                        i, budget[i], budget[2 + i] + others[i], need[i], before[i], others[2]
                    )
                    for i in (0, 1)
                ]
                before = (parts[0], parts[1])
                await connection.execute(LEND, (self._root, self._tenant, *before))
        self._loan = before

    def _part(
        self, i: int, limit: int | None, taken_by_others: int, need: int, before: int, n: int
    ) -> int:
        if limit is None:
            return need + 8 * max(0, need - before)
        rest = limit - taken_by_others
        part = loan(rest, need, before, n)
        if part is None:
            raise self._refusal(i, limit, rest - min(need, before), need - before)
        return part

    def _refusal(self, i: int, limit: int, rest: int, need: int) -> ModelUnavailable:
        words = USED_UP.format(
            tenant=self._tenant,
            limit=written(i, limit),
            left=written(i, max(0, rest)),
            need=written(i, need),
        )
        error = ModelUnavailable(words, KIND, usage=Usage(), sent=False)
        error.trouble = ProviderTrouble(provider=f"The budget of {self._tenant}", answer="used up")
        return error


def _covers(loan: tuple[int, int], need: tuple[int, int]) -> bool:
    return loan[0] >= need[0] and loan[1] >= need[1]


class PaidModel:
    """A model whose calls leave once the tenant's budget covers them."""

    def __init__(self, model: Model, allowance: TenantAllowance) -> None:
        self._model, self._allowance = model, allowance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        await self._allowance.cover()
        return await self._model.complete(request, emit)


class PaidModels(Mapping[str, Model]):
    """The models of a worker, for a tree of a tenant."""

    def __init__(self, models: Mapping[str, Model], allowance: TenantAllowance) -> None:
        self._models, self._allowance = models, allowance

    def __getitem__(self, name: str) -> Model:
        model: Any = PaidModel(self._models[name], self._allowance)
        return model  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)
