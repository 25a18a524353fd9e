"""What workers use of one account at a provider, leased from rows: calls at a time, calls and
tokens a minute in small chunks, and the pauses that all workers respect.

Calls at a time belong to a worker as long as its lease holds: what it does not use comes back, and
so does all that a dead worker had. A chunk of a minute's calls is used within two seconds or lost:
it comes back with time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import psycopg
from psycopg import AsyncConnection

from retinue.cluster.leased_account import LeasedAccount
from retinue.cluster.liveness import clock
from retinue.cluster.node_notices import PAUSE, POOL, send_notice
from retinue.cluster.ownership import Pool
from retinue.core.fair_division import Level, WorkerClaim, divide
from retinue.models.governor import Governor
from retinue.models.rate_bucket import Bucket

log = logging.getLogger("retinue.cluster")

LOOK_SECONDS = 0.2
"""How often is looked, while calls wait or are under way."""
REST_SECONDS = 1.0
FRESH_SECONDS = 1.0
"""A worker that has not asked for so long has no place in the queue."""

MAKE = "insert into pools (name) values (%s) on conflict do nothing"
READ = """
select requests, tokens, extract(epoch from clock_timestamp() - filled_at)::float8 from pools
where name = %s for update"""
LEASE = """
select extract(epoch from until - clock_timestamp())::float8 from workers
where id = %s and until > clock_timestamp()"""
DEAD = """
delete from chunks c where pool = %s and not exists (
  select 1 from workers w where w.id = c.holder and w.until > clock_timestamp())"""
JOIN = "insert into chunks (pool, holder) values (%s, %s) on conflict do nothing"
CLAIMS = """
select holder::text, calls, wanted,
  lacks and asked_at > clock_timestamp() - make_interval(secs => %s) from chunks
where pool = %s order by given_at, holder"""
HOLD = """
update chunks set calls = %s, wanted = %s, lacks = %s, asked_at = clock_timestamp(),
  given_at = case when %s then clock_timestamp() else given_at end
where pool = %s and holder = %s"""
LEAVE = "delete from chunks where pool = %s and holder = %s"
FILL = "update pools set requests = %s, tokens = %s, filled_at = clock_timestamp() where name = %s"
STOP = """
insert into pools (name, paused_until, why)
values (%(name)s, clock_timestamp() + make_interval(secs => %(seconds)s), %(why)s)
on conflict (name) do update set
  why = case when excluded.paused_until > pools.paused_until then excluded.why else pools.why end,
  paused_until = greatest(pools.paused_until, excluded.paused_until)"""
PAUSED = """
select name, extract(epoch from paused_until - clock_timestamp())::float8, why from pools
where name = any(%s) and paused_until > clock_timestamp()"""


class ProviderPools:
    """The accounts that this worker (`me`) uses together with others."""

    def __init__(self, pool: Pool, me: str) -> None:
        self._pool, self._me = pool, me
        self._accounts: dict[str, LeasedAccount] = {}
        self._pauses: dict[str, tuple[float, str]] = {}
        self._nudge = asyncio.Event()

    def join(self, name: str, governor: Governor) -> None:
        """Another account that others may use: its governor asks here before a call."""
        name = "_".join(name.split())
        account = LeasedAccount(name, governor, self._nudge.set, self._pause)
        self._accounts[name] = account
        governor.share = account

    def notice(self, kind: str) -> None:
        """Another worker has returned something, or was asked to pause; or notices may have been
        missed ("")."""
        if kind in (POOL, PAUSE, ""):
            self._nudge.set()

    def _pause(self, name: str, seconds: float, why: str) -> None:
        until, _ = self._pauses.get(name, (0.0, ""))
        self._pauses[name] = (max(until, clock() + seconds), why)
        self._nudge.set()

    async def work(self) -> None:
        """Lease and give back, until this is cancelled."""
        while True:
            is_busy = any(account.is_busy for account in self._accounts.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if is_busy else REST_SECONDS):
                    await self._nudge.wait()
            self._nudge.clear()
            try:
                await self.look()
            except (psycopg.Error, OSError) as error:
                log.info("cannot lease from the accounts of providers: %s", error)
                await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Write and read pauses, then lease what is wanted."""
        await self._write_pauses()
        await self._read_pauses()
        for account in list(self._accounts.values()):
            if account.is_limited and account.is_busy:
                await self._lease(account)

    # pauses

    async def _write_pauses(self) -> None:
        for name, (until, why) in list(self._pauses.items()):
            seconds = until - clock()
            if seconds > 0:
                async with self._pool.connection() as connection, connection.transaction():
                    await connection.execute(STOP, {"name": name, "seconds": seconds, "why": why})
                    await send_notice(connection, PAUSE, name)
            if self._pauses[name][0] == until:
                del self._pauses[name]

    async def _read_pauses(self) -> None:
        names = list(self._accounts)
        if not names:
            return
        async with self._pool.connection() as connection:
            for name, seconds, why in await _all(connection, PAUSED, names):
                self._accounts[name].governor.cool(seconds, why)
        for name in names:
            self._accounts[name].know()

    # leases

    async def _lease(self, account: LeasedAccount) -> None:
        """Give back what is not needed, and take our part of what is."""
        began, name, need = clock(), account.name, account.stand_still()
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(MAKE, (name,))
            (stored,) = await _all(connection, READ, name)
            await connection.execute(DEAD, (name,))
            lease = await _all(connection, LEASE, self._me)
            if not lease:
                return
            await connection.execute(JOIN, (name, self._me))
            rows = await _all(connection, CLAIMS, FRESH_SECONDS, name)
            claims = {holder: WorkerClaim(*claim) for holder, *claim in rows}
            buckets = account.buckets(*stored)
            level = Level(account.most_calls, *(_left(bucket) for bucket in buckets))
            part = divide(list(claims.values()), list(claims).index(self._me), need, level)
            before = claims[self._me]
            if part.starts:
                for bucket, cost in zip(buckets, (1.0, need.tokens), strict=True):
                    if bucket is not None:
                        bucket.take(part.starts * cost, 0.0)
                levels = [None if bucket is None else bucket.level for bucket in buckets]
                await connection.execute(FILL, (*levels, name))
            holding = max(part.calls, need.under_way if account.most_calls else 0)
            demand = need.under_way + need.waiting
            if not holding and not demand:
                await connection.execute(LEAVE, (name, self._me))
            else:
                is_more = holding > before.calls or part.starts > 0
                claim = (holding, demand, part.lacks, is_more)
                await connection.execute(HOLD, (*claim, name, self._me))
            if holding < before.calls:
                await send_notice(connection, POOL, name)
        account.lease(part, need, began, lease[0][0])


def _left(bucket: Bucket | None) -> float | None:
    return None if bucket is None else bucket.left(0.0)


async def _all(connection: AsyncConnection[Any], sql: str, *args: Any) -> list[Any]:
    return await (await connection.execute(sql, args)).fetchall()
