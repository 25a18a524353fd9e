"""Lane slots that trees share, as rows: exact over all nodes, in the order of the requests, and to
tenants in turn. A slot belongs to a run, not to a worker: a tree that another worker takes over
keeps what its runs hold.

What a run wants of a lane is written in the commit of the step that wants it. Who is given what is
decided afterwards, by any worker: what one leaves undone, another finds."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import psycopg
from psycopg import AsyncConnection

from retinue.cluster.base import Dispatcher
from retinue.cluster.node_notices import SLOT, send_notice
from retinue.cluster.ownership import Held, Pool
from retinue.core.effects import AskSlot, FreeSlot

log = logging.getLogger("retinue.cluster")

# A row that its tree changes at this moment is passed over: that commit has its own grant.
GRANT = """
with places as (
  select run, row_number() over (
    partition by tenant order by held desc, is_back desc, n) as place
  from lane_slots where lane = %(lane)s)
update lane_slots s set held = true, told = false from (
  select w.run from lane_slots w join places p on p.run = w.run
  where w.lane = %(lane)s and not w.held
  order by p.place, w.is_back desc, w.n
  limit greatest(0, (
    select min(size) - count(*) filter (where held) from lane_slots where lane = %(lane)s))
  for update of w skip locked
) next where s.lane = %(lane)s and s.run = next.run
"""
UNTOLD = "select distinct root from lane_slots where lane = %s and held and not told"
LOCK = "select root, owner is null from trees where root = any(%s) order by root for no key update"
TOLD = "update lane_slots set told = true where lane = %s and root = any(%s) and held and not told"
ASK = """
insert into lane_slots (lane, size, run, root, ticket, is_back, tenant)
select u.lane, u.size, u.run, r.root, u.ticket, u.back,
  coalesce((select tenant from trees t where t.root = r.root), '')
from (select %s::text as root) r,
unnest(%s::text[], %s::int[], %s::text[], %s::bigint[], %s::bool[])
with ordinality u (lane, size, run, ticket, back, place) order by u.place
on conflict (lane, run) do update set
size = excluded.size, ticket = excluded.ticket, is_back = excluded.is_back, told = false"""
FREE = """
delete from lane_slots s using unnest(%s::text[], %s::text[]) u (lane, run)
where s.lane = u.lane and s.run = u.run"""
HOLD = """
insert into lane_slots (lane, size, run, root, ticket, is_back, held, told, tenant)
select %s, %s, %s, t.root, 0, false, true, true, t.tenant from trees t where t.root = %s
on conflict do nothing"""
UNDONE = """
select lane from lane_slots group by lane having bool_or(held and not told)
or (bool_or(not held) and count(*) filter (where held) < min(size))"""
ENDED = """
delete from lane_slots s
where not exists (select 1 from trees t where t.root = s.root and t.is_open) returning lane"""
AFTER_ERROR_SECONDS = 0.5

Statement = tuple[str, tuple[Any, ...]]


def statements(root: str, effects: Iterable[AskSlot | FreeSlot]) -> list[Statement]:
    """What these write, in their order."""
    out: list[Statement] = []
    effects = [effect for effect in effects if not effect.lane.is_need]
    for is_ask, some in groupby(effects, lambda effect: isinstance(effect, AskSlot)):
        last = {(effect.lane.name, effect.run): effect for effect in some}
        lanes, runs = [lane for lane, _ in last], [run for _, run in last]
        if is_ask:
            requests = [effect for effect in last.values() if isinstance(effect, AskSlot)]
            sizes = [effect.lane.size for effect in requests]
            tickets = [effect.ticket for effect in requests]
            out.append((ASK, (root, lanes, sizes, runs, tickets, [e.back for e in requests])))
        else:
            out.append((FREE, (lanes, runs)))
    return out


class Slots:
    """The lanes of all trees. What was granted is read by the tree that asked (`granted`)."""

    def __init__(self, pool: Pool, dispatcher: Dispatcher) -> None:
        self._pool, self._dispatcher = pool, dispatcher
        self._changed: set[str] = set()
        self._nudge = asyncio.Event()

    def touch(self, lane: str) -> None:
        """Something was written for this lane."""
        self._changed.add(lane)
        self._nudge.set()

    async def work(self) -> None:
        """Give slots to those who are next, and have their trees driven."""
        while True:
            await self._nudge.wait()
            self._nudge.clear()
            while self._changed:
                lane = self._changed.pop()
                try:
                    await self._grant(lane)
                    await self._tell(lane)
                except (psycopg.Error, OSError) as error:
                    log.info("cannot give slots of lane %s: %s", lane, error)
                    self.touch(lane)
                    await asyncio.sleep(AFTER_ERROR_SECONDS * (0.5 + random.random()))

    async def _grant(self, lane: str) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(
                "select pg_advisory_xact_lock(hashtextextended(%s, 19))", [lane]
            )
            await connection.execute(GRANT, {"lane": lane})

    async def _tell(self, lane: str) -> None:
        """The trees that were given something: notified where they are, or driven again."""
        async with self._pool.connection() as connection:
            untold = [root for (root,) in await _all(connection, UNTOLD, lane)]
            if not untold:
                return
            async with connection.transaction():
                rows = await _all(connection, LOCK, untold)
                await connection.execute(TOLD, (lane, untold))
                asleep = [root for root, sleeps in rows if sleeps]
                await connection.execute(
                    "update trees set wake_at = now() where root = any(%s)", (asleep,)
                )
                for root in asleep:
                    await self._dispatcher.wake(connection, root)
                await send_notice(connection, SLOT, *(root for root, sleeps in rows if not sleeps))
        for root in asleep:
            await self._dispatcher.woken(root)

    async def granted(self, root: str) -> list[tuple[str, int]]:
        """The runs of a tree that hold a slot, each with the ticket with which it asked last."""
        async with self._pool.connection() as connection:
            return await _all(
                connection,
                "select run, ticket from lane_slots where root = %s and held order by n",
                root,
            )

    async def keep(self, tree: Held, in_use: Sequence[tuple[str, str, int, bool]]) -> None:
        """Make the rows of a tree what its runs hold and queue for: run, lane, its size, and
        whether it is held. They differ after a defect of ours."""
        slots = {(run, lane) for run, lane, _, _ in in_use}
        async with self._pool.connection() as connection, connection.transaction():
            owned = await _all(
                connection,
                "select 1 from trees where root = %s and epoch = %s for no key update",
                tree.root,
                tree.epoch,
            )
            rows = await _all(
                connection, "select run, lane from lane_slots where root = %s", tree.root
            )
            lost_rows = [row for row in rows if row not in slots] if owned else []
            for run, lane in lost_rows:
                await connection.execute(FREE, ([lane], [run]))
            for run, lane, size, is_held in in_use if owned else ():
                if is_held and (run, lane) not in rows:
                    await connection.execute(HOLD, (lane, size, run, tree.root))
        for _, lane in lost_rows:
            self.touch(lane)

    async def sweep(self) -> None:
        """Find what a worker that died has left undone, and the slots of trees that have ended."""
        async with self._pool.connection() as connection:
            for (lane,) in [*await _all(connection, ENDED), *await _all(connection, UNDONE)]:
                self.touch(lane)


async def _all(connection: AsyncConnection[Any], sql: str, *args: Any) -> list[Any]:
    return await (await connection.execute(sql, args or None)).fetchall()
