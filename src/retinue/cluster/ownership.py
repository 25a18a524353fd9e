"""Which worker owns which tree, as rows: acquire, release, and the inbox of events from outside.

Whatever is inserted for a tree is inserted under the lock of its row, with its wake; the worker
that lets go of the tree looks for such rows under the same lock. So nothing is left unseen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from retinue.cluster.base import Dispatcher
from retinue.cluster.liveness import Verdicts
from retinue.cluster.node_notices import INBOX, send_notice
from retinue.cluster.tree_format import FORMAT
from retinue.core.events import LogEntry, Requested
from retinue.store.chains import genesis

Pool = AsyncConnectionPool[AsyncConnection[Any]]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LogEntry).decode

LOCK = (
    "select epoch, owner::text, handed_over, is_open, tenant, format from trees where root = %s"
    " for no key update"
)
DUE = """
(select root from trees where owner is null and is_open and format <= %(format)s
    and wake_at <= now() and root <> all(%(without)s)
    and (needs = '{}' or not exists (
        select 1 from unnest(needs) n where n not like '/%%' and n <> all(%(offers)s)))
    order by wake_at limit %(most)s)
union (select t.root from inbox i join trees t on t.root = i.root
    where t.owner is null and t.format <= %(format)s and t.root <> all(%(without)s)
    limit %(most)s)
union (select t.root from trees t left join workers w on w.id = t.owner
    where t.owner is not null and t.format <= %(format)s and t.root <> all(%(without)s)
    and (w.until is null or w.until <= clock_timestamp()) limit %(most)s)"""
WANTED = """
select agent, needs, exists (select 1 from inbox where inbox.root = t.root) from trees t
where root = %(root)s"""
GIVE_BACK = """
update loans set tokens = spent_tokens, nanos = spent_nanos where root = %s"""
IS_LIVE = "select 1 from workers where id = %s and until > clock_timestamp()"


@dataclass(frozen=True, slots=True)
class Held:
    """A tree that was taken. `handed_over`: nothing has crashed with it. `tenant`: the user it
    belongs to, or ""."""

    root: str
    epoch: int
    handed_over: bool
    tenant: str = ""


class Wanted(NamedTuple):
    """What a worker needs for a tree: the agent of its root, and what runs need of the machine.
    `has_mail`: something has come for it, which any worker can take in."""

    agent: str
    needs: tuple[str, ...]
    has_mail: bool


@dataclass(frozen=True, slots=True)
class OwnedRow:
    """A tree's row, locked. `is_driven`: its owner lives."""

    epoch: int
    owner: str | None
    handed_over: bool
    is_open: bool
    tenant: str
    format: int
    is_driven: bool = False


async def _locked(connection: AsyncConnection[Any], root: str) -> OwnedRow | None:
    """The worker is looked up by a statement of its own: one that waits for the lock sees the new
    owner, but the workers of the time before."""
    row = await (await connection.execute(LOCK, (root,))).fetchone()
    if row is None:
        return None
    owned = OwnedRow(*row)
    if owned.owner is not None:
        workers = await connection.execute(IS_LIVE, (owned.owner,))
        owned = replace(owned, is_driven=await workers.fetchone() is not None)
    return owned


class Ownership:
    """The rows of trees, for one worker (`me`), or for a client, which owns none."""

    def __init__(self, pool: Pool, dispatcher: Dispatcher, me: str = "") -> None:
        self._pool, self._dispatcher, self.me = pool, dispatcher, me
        self._verdicts = Verdicts()

    async def take(self, root: str) -> Held | None:
        """Own a tree that no living worker owns: its epoch is one more. None when there is nothing
        to take."""
        async with self._pool.connection() as connection, connection.transaction():
            row = await _locked(connection, root)
            if row is None or not row.is_open or row.is_driven or row.format > FORMAT:
                return None
            crashed = False
            if row.owner is not None:
                crashed = await self._verdicts.has_crashed(connection, row.owner)
            # To lose a lease is not a crash; a tree that was let go of keeps its reason.
            handed_over = row.handed_over if row.owner is None else not crashed
            mine = await connection.execute(
                "update trees t set owner = w.id, epoch = epoch + 1, handed_over = %s, format = %s"
                " from workers w where t.root = %s and w.id = %s and not w.draining"
                " and w.until > clock_timestamp()",
                (handed_over, FORMAT, root, self.me),
            )
            if not mine.rowcount:
                return None
            if row.owner is not None:
                await connection.execute(
                    "insert into takeovers (root, epoch, former, owner, crashed)"
                    " values (%s, %s, %s, %s, %s)",
                    (root, row.epoch + 1, row.owner, self.me, crashed),
                )
            return Held(root, row.epoch + 1, handed_over, row.tenant)

    async def release(
        self,
        tree: Held,
        wake_at: int | None,
        *,
        is_open: bool,
        askers: Iterable[str] = (),
        needs: Sequence[str] = (),
        moves: bool = False,
    ) -> bool:
        """Let go of a tree, unless something has come for it, mail or a slot of a lane for one of
        the `askers`. The epoch moves, so that nothing is written behind its back. `needs` is what
        the next worker must offer; with `moves` this one does not, and another is looked for."""
        async with self._pool.connection() as connection, connection.transaction():
            row = await _locked(connection, tree.root)
            if row is None or row.epoch != tree.epoch:
                return True
            waiting = await connection.execute(
                "select 1 from inbox where root = %s union all"
                " select 1 from lane_slots where held and root = %s and run = any(%s) limit 1",
                (tree.root, tree.root, list(askers)),
            )
            if await waiting.fetchone() is not None:
                return False
            await connection.execute(
                "update trees set owner = null, epoch = epoch + 1, handed_over = true,"
                " is_open = %s, needs = %s, wake_at = to_timestamp(%s::float8 / 1000)"
                " where root = %s",
                (is_open, list(needs), wake_at, tree.root),
            )
            if row.tenant:
                await connection.execute(GIVE_BACK, (tree.root,))
            if moves:
                await self._dispatcher.wake(connection, tree.root)
        if moves:
            await self._dispatcher.woken(tree.root)
        return True

    async def give_up(self, trees: list[Held]) -> None:
        """Let go of trees in the middle of their work, which was stopped: they are due now."""
        due = []
        async with self._pool.connection() as connection, connection.transaction():
            for tree in sorted(trees, key=lambda tree: tree.root):
                freed = await connection.execute(
                    "update trees set owner = null, epoch = epoch + 1, handed_over = true,"
                    " wake_at = now() where root = %s and epoch = %s",
                    (tree.root, tree.epoch),
                )
                if freed.rowcount:
                    due.append(tree.root)
                    await self._dispatcher.wake(connection, tree.root)
        for root in due:
            await self._dispatcher.woken(root)

    async def put(self, root: str, entry: LogEntry) -> int | None:
        """Insert something for a tree, and have it driven. Returns the number under which it is
        answered; None when the tree is not open."""
        async with self._pool.connection() as connection, connection.transaction():
            if isinstance(entry.event, Requested):
                request = entry.event.request
                tenant = "" if request.origin is None else request.origin.user
                await connection.execute(
                    "insert into trees (root, chain, is_open, wake_at, agent, tenant)"
                    " values (%s, %s, true, now(), %s, %s) on conflict do nothing",
                    (root, genesis(root), request.agent, tenant),
                )
            row = await _locked(connection, root)
            if row is None or not row.is_open:
                return None
            inserted = await connection.execute(
                "insert into inbox (root, key, kind, body) values (%s, %s, %s, %s) returning n",
                (root, uuid4().hex, type(entry.event).__name__, _encode(entry)),
            )
            numbered = await inserted.fetchone()
            assert numbered is not None
            if row.format < FORMAT:
                await connection.execute(
                    "update trees set format = %s where root = %s", (FORMAT, root)
                )
            if row.is_driven:
                await send_notice(connection, INBOX, root)
            else:
                await self._dispatcher.wake(connection, root)
        if not row.is_driven:
            await self._dispatcher.woken(root)
        return int(numbered[0])

    async def wanted(self, root: str) -> Wanted:
        """What a worker needs for a tree. There may be no such tree."""
        async with self._pool.connection() as connection:
            rows = await connection.execute(WANTED, {"root": root})
            row = await rows.fetchone()
            return Wanted("", (), False) if row is None else Wanted(row[0], tuple(row[1]), row[2])

    async def mine(self) -> list[Held]:
        """The trees that this worker owns."""
        async with self._pool.connection() as connection:
            rows = await connection.execute(
                "select root, epoch, handed_over from trees where owner = %s", (self.me,)
            )
            return [Held(*row) for row in await rows.fetchall()]

    async def inbox(self, root: str, after: int) -> list[tuple[int, LogEntry]]:
        """What has come for a tree behind a number, oldest first."""
        async with self._pool.connection() as connection:
            rows = await connection.execute(
                "select n, body from inbox where root = %s and n > %s order by n",
                (root, after),
            )
            return [(n, _decode(body)) for n, body in await rows.fetchall()]

    async def answers(self, numbers: list[int]) -> list[tuple[int, str]]:
        """What became of things that were put into inboxes: why each was refused, or ""."""
        async with self._pool.connection() as connection:
            rows = await connection.execute(
                "select u.n, coalesce(r.why, '') from unnest(%s::bigint[]) u(n)"
                " left join refusals r on r.n = u.n"
                " where not exists (select 1 from inbox i where i.n = u.n)",
                (numbers,),
            )
            return list(await rows.fetchall())

    async def with_mail(self, roots: list[str]) -> list[str]:
        """Those of these trees for which something has come."""
        async with self._pool.connection() as connection:
            rows = await connection.execute(
                "select distinct root from inbox where root = any(%s)", (roots,)
            )
            return [root for (root,) in await rows.fetchall()]

    async def due(
        self, limit: int, without: Sequence[str] = (), offers: Sequence[str] = ()
    ) -> list[str]:
        """Trees that want to be driven and that no living worker owns: their time has come, or
        something has come for them, or their worker is gone. Those that wait for a label that is
        not among the `offers` are ignored, unless something has come."""
        values = {
            "format": FORMAT,
            "most": limit,
            "without": list(without),
            "offers": list(offers),
        }
        async with self._pool.connection() as connection:
            rows = await connection.execute(DUE, values)
            return [root for (root,) in await rows.fetchall()][:limit]
