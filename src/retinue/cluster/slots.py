"""Slots of lanes that trees share, as rows: exact over all nodes, in the order in which they were
asked for. A slot belongs to a run, not to a worker: a tree that another worker takes over keeps
what its runs hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from psycopg import AsyncConnection

from retinue.cluster.base import Dispatcher
from retinue.cluster.node_notices import SLOT, send_notice
from retinue.cluster.ownership import Pool
from retinue.core.effects import AskSlot, FreeSlot

GRANT = """
update lane_slots s set held = true from (
  select run from lane_slots where lane = %(lane)s and not held
  order by is_back desc, n
  limit greatest(0, %(size)s - (select count(*) from lane_slots where lane = %(lane)s and held))
) next where s.lane = %(lane)s and s.run = next.run returning s.root
"""


class Slots:
    """The lanes of all trees. What was granted is read by the tree that asked (`granted`)."""

    def __init__(self, pool: Pool, dispatcher: Dispatcher) -> None:
        self._pool, self._dispatcher = pool, dispatcher

    async def perform(self, root: str, effect: AskSlot | FreeSlot) -> None:
        """A run asks for a slot, or wants its slot or its place in the queue no longer."""
        lane = effect.lane
        async with self._pool.connection() as connection:
            async with connection.transaction():
                await _lock(connection, lane.name)
                if isinstance(effect, FreeSlot):
                    await connection.execute(
                        "delete from lane_slots where lane = %s and run = %s",
                        (lane.name, effect.run),
                    )
                else:
                    await connection.execute(
                        "insert into lane_slots (lane, size, run, root, ticket, is_back)"
                        " values (%s, %s, %s, %s, %s, %s) on conflict (lane, run)"
                        " do update set ticket = excluded.ticket, is_back = excluded.is_back",
                        (lane.name, lane.size, effect.run, root, effect.ticket, effect.back),
                    )
                roots = await _grant(connection, lane.name, lane.size)
            await self._wake(connection, roots)

    async def granted(self, root: str) -> list[tuple[str, int]]:
        """The runs of a tree that hold a slot, each with the ticket with which it asked last."""
        async with self._pool.connection() as connection:
            rows = await connection.execute(
                "select run, ticket from lane_slots where root = %s and held order by n",
                (root,),
            )
            return list(await rows.fetchall())

    async def waiting(self, roots: list[str]) -> list[str]:
        """Those of these trees that hold a slot of a shared lane, which they may not know."""
        async with self._pool.connection() as connection:
            rows = await connection.execute(
                "select distinct root from lane_slots where root = any(%s) and held", (roots,)
            )
            return [root for (root,) in await rows.fetchall()]

    async def keep(self, root: str, in_use: Iterable[tuple[str, str]]) -> None:
        """Give back what no run of this tree holds or queues for: a process died between a step
        and what it asked for."""
        known = set(in_use)
        async with self._pool.connection() as connection:
            rows = await connection.execute(
                "select lane, size, run from lane_slots where root = %s", (root,)
            )
            lost = [row for row in await rows.fetchall() if (row[2], row[0]) not in known]
            for lane, size, run in lost:
                async with connection.transaction():
                    await _lock(connection, lane)
                    await connection.execute(
                        "delete from lane_slots where lane = %s and run = %s", (lane, run)
                    )
                    roots = await _grant(connection, lane, size)
                await self._wake(connection, roots)

    async def sweep(self) -> None:
        """Give back the slots of trees that have ended."""
        async with self._pool.connection() as connection:
            rows = await connection.execute(
                "select distinct s.root from lane_slots s"
                " where not exists (select 1 from trees t where t.root = s.root and t.is_open)"
            )
            ended = [root for (root,) in await rows.fetchall()]
        for root in ended:
            await self.keep(root, ())

    async def _wake(self, connection: AsyncConnection[Any], roots: Iterable[str]) -> None:
        """The trees that were granted something: notified where they are, or driven again."""
        asleep = []
        async with connection.transaction():
            for root in sorted(set(roots)):
                owners = await connection.execute(
                    "update trees set wake_at = now() where root = %s returning owner", (root,)
                )
                row = await owners.fetchone()
                if row is not None and row[0] is None:
                    asleep.append(root)
                    await self._dispatcher.wake(connection, root)
                elif row is not None:
                    await send_notice(connection, SLOT, root)
        for root in asleep:
            await self._dispatcher.woken(root)


async def _lock(connection: AsyncConnection[Any], lane: str) -> None:
    await connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 19))", (lane,))


async def _grant(connection: AsyncConnection[Any], lane: str, size: int) -> list[str]:
    rows = await connection.execute(GRANT, {"lane": lane, "size": size})
    return [root for (root,) in await rows.fetchall()]
