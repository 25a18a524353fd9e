from __future__ import annotations
import asyncio
from typing import Any
import msgspec
from psycopg_pool import AsyncConnectionPool
from retinue.core.account import Account
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.spec import RunSpec
from retinue.core.state import Run, RunRecord
from retinue.core.values import Definition, Delivery, Mail, ModelInfo
from retinue.errors import StoreError
from retinue.store.base import Snapshot, RunLine
from retinue.store.memory import MemoryStore
from retinue.store.sent_calls import SentCalls
from retinue.store.sqlite.tables import encode, merge
from retinue.store.sqlite.tree_logs import genesis, link
from retinue.store.sqlite.reader import _read_head
from hashlib import sha256 as H

D = {t: msgspec.json.Decoder(t).decode for t in (RunSpec, Run, Account, LogEntry, Mail, Delivery, Definition, ModelInfo)}
dmsg = msgspec.json.Decoder(Message).decode
ROW = "select specs.body, runs.body from runs join specs on run = id"
UP = "with recursive up (id) as (select parent from runs where root = %(r)s and open and parent <> '' union select parent from up join runs using (id) where parent <> '')"

class TreeTaken(StoreError):
    pass

class Interim(MemoryStore):
    def __init__(self, url):
        super().__init__()
        self.url = url
        self.pool = AsyncConnectionPool(url, min_size=1, max_size=8, open=False, kwargs={"autocommit": True})
        self.sent = SentCalls()
        self.queue = []
        self.wake = asyncio.Event()
        self.path = ""
        self.heads = {}

    async def connect(self):
        from retinue.store.postgres import schema
        import psycopg
        def mig():
            with psycopg.connect(self.url, autocommit=True) as db:
                schema.migrate(db, self.url)
        await asyncio.to_thread(mig)
        await self.pool.open()
        self.conn = None
        self.task = asyncio.create_task(self.loop())

    async def open(self):
        return 0

    async def close(self):
        if self.pool.closed: return
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self.conn is not None: await self.conn.close()
        await self.pool.close()

    async def all(self, sql, args=()):
        import psycopg, psycopg_pool
        for n in range(40):
            try:
                async with self.pool.connection() as c:
                    return await (await c.execute(sql, args)).fetchall()
            except (psycopg.OperationalError, psycopg_pool.PoolTimeout):
                if n == 39: raise StoreError("the database did not answer") from None
                await asyncio.sleep(0.25)

    async def rows(self, sql, args=()):
        return [RunRecord(D[RunSpec](s), D[Run](b)) for s, b in await self.all(sql, args)]

    async def load_shared(self):
        return Snapshot(definitions=[D[Definition](b) for (b,) in await self.all("select body from definitions")],
            models=[D[ModelInfo](b) for (b,) in await self.all("select body from models")])

    async def load(self, root=""):
        if not root:
            out = Snapshot()
            for (r,) in await self.all("select root from trees where is_open"):
                s = await self.load(r)
                for f in ("open", "back", "above", "accounts", "mail", "deliveries"): getattr(out, f).extend(getattr(s, f))
            return out
        r = {"r": root}
        return Snapshot(
            open=await self.rows(ROW + " where root = %(r)s and open order by n", r),
            back=await self.rows(ROW + " where runs.n in (select c.n from runs p join runs c on c.parent = p.id and c.slot_turn = p.turn where p.root = %(r)s and p.open and not c.open) order by n", r),
            above=await self.rows(UP + ROW + " where not open and id in (select id from up) order by n", r),
            accounts=[D[Account](b) for (b,) in await self.all(UP + " select account from runs where (id in (select id from runs where root = %(r)s and open union select id from up)) and account is not null", r)],
            mail=[(x, D[Mail](b)) for x, b in await self.all("select mail.run, mail.body from runs join mail on run = id where root = %(r)s and open order by run, seq", r)],
            deliveries=[D[Delivery](b) for (b,) in await self.all("select o.body from outbox o join runs on runs.id = o.run where root = %(r)s and o.state in ('pending','sent','dead') order by o.n", r)],
            last_seq=await self.position())

    async def position(self):
        ((n,),) = await self.all("select coalesce(max(seq), 0) from events")
        return n

    async def row(self, id):
        rows = await self.rows(ROW + " where id = %s", (id,))
        return rows[0] if rows else None
    async def known(self, ids):
        return {i for (i,) in await self.all("select id from runs where id = any(%s)", (list(ids),))}
    async def account(self, id):
        rows = await self.all("select account from runs where id = %s", (id,))
        return D[Account](rows[0][0]) if rows and rows[0][0] else None
    async def children(self, parent):
        return await self.rows(ROW + " where parent = %s order by slot_turn, n", (parent,))
    async def messages(self, conversation, start=0, stop=None):
        parts = []; stop = 1 << 60 if stop is None else stop; start = max(0, start); name = conversation
        while name and stop > start:
            found = await self.all("select coalesce(base_length,0), base_id from conversations where id = %s", (name,))
            if not found: break
            low, base = found[0]
            parts[:0] = [dmsg(b) for (b,) in await self.all("select body from messages where conversation=%s and n >= %s and n < %s order by n", (name, max(low, start), stop))]
            stop = min(stop, low); name = base
        return parts
    async def entries(self, after=0, run="", limit=1000, *, tree=None):
        col = "seq" if tree is None else "number"
        sql = f"select {col}, body, root from events where body is not null and {col} > %s" + (" and run = %s" if run else "") + (" and root = %s" if tree is not None else "") + f" order by {col} limit %s"
        args = [after] + ([run] if run else []) + ([tree] if tree is not None else []) + [limit]
        return [(n, msgspec.structs.replace(D[LogEntry](b), tree=r)) for n, b, r in await self.all(sql, args)]
    async def deliveries(self, states=()):
        return [D[Delivery](b) for (b,) in await self.all("select body from outbox where %s or state = any(%s) order by n", (not list(states), list(states)))]
    async def listing(self, **k):
        out = []
        for id, root, parent, spec, state, c, e in await self.all("select id, root, parent, specs.body, state, created_at, ended_at from runs join specs on run=id order by n desc limit %s", (k.get("limit", 100),)):
            if parent and not k.get("children"): continue
            h = _read_head(spec); o = h.order
            out.append(RunLine(id=id, root=root, parent=parent, label=o.label or o.agent, state=state, created_at=c, ended_at=e, user_initiated=not parent, agent=o.agent, task=o.task, meta=h.meta))
        return out
    async def put_artifact(self, data):
        return await super().put_artifact(data)

    async def commit(self, changes):
        return await self.commit_tree("", -1, changes)

    async def commit_tree(self, root, epoch, changes, statements=()):
        fut = asyncio.get_running_loop().create_future()
        self.queue.append((root, epoch, encode(changes, has_artifacts=False), list(statements), fut))
        self.wake.set()
        return await fut

    async def loop(self):
        import psycopg
        while True:
            await self.wake.wait(); self.wake.clear()
            while self.queue:
                batch, self.queue = self.queue, []
                try:
                    if self.conn is None or self.conn.closed:
                        self.conn = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
                    await self.write(batch)
                except Exception as e:
                    if self.conn is not None: await self.conn.close()
                    for *_, f in batch:
                        if not f.done(): f.set_exception(StoreError(f"postgres: {e!r}"))

    async def write(self, batch):
        async with self.conn.transaction():
            cur = self.conn.cursor()
            pairs = sorted({(b[0], b[1]) for b in batch if b[0]})
            await cur.execute("select t.root, t.epoch from trees t join unnest(%s::text[], %s::bigint[]) u(r, e) on t.root = u.r and t.epoch = u.e order by t.root for no key update of t", ([p[0] for p in pairs], [p[1] for p in pairs]))
            mine = set(await cur.fetchall())
            good = [b for b in batch if not b[0] or (b[0], b[1]) in mine]
            if good:
                seq = await self.rows_of(cur, merge([b[2] for b in good]))
                for b in good:
                    for sql, args in b[3]:
                        await cur.execute(sql, args)
        for b in batch:
            if b[4].done(): continue
            if not b[0] or (b[0], b[1]) in mine: b[4].set_result(seq)
            else: b[4].set_exception(TreeTaken(f"The tree {b[0]} was taken over (epoch {b[1]} is old)."))

    async def rows_of(self, cur, b):
        async def many(sql, rows):
            if rows: await cur.execute(sql, [list(c) for c in zip(*rows)])
        roots = sorted({e[0] for e in b.events})
        await many("insert into trees (root, chain) select * from unnest(%s::text[], %s::bytea[]) on conflict do nothing", [(r, genesis(r)) for r in roots])
        await cur.execute("select root, last, chain from trees where root = any(%s)", (roots,))
        heads = {r: [l, bytes(c)] for r, l, c in await cur.fetchall()}
        await cur.execute("select nextval('positions') from generate_series(1, %s)", (len(b.events),))
        seqs = [n for (n,) in await cur.fetchall()]
        ev = []
        for seq, (tree, run, at, body, digest) in zip(seqs, b.events):
            h = heads[tree]; h[0] += 1; h[1] = link(h[1], h[0], run, at, digest)
            ev.append((seq, tree, h[0], run, at, digest, h[1], body))
        await many("insert into events (seq, root, number, run, at, digest, chain, body) select * from unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bytea[], %s::bytea[], %s::bytea[])", ev)
        await many("update trees set last = l, chain = c from unnest(%s::text[], %s::bigint[], %s::bytea[]) u(r, l, c) where root = r", [(r, *h) for r, h in heads.items()])
        await many("insert into conversations (id, parent_id, base_id, base_length, base_start, created_at) select * from unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[]) on conflict do nothing", [(id, p, v[1], v[2], v[3], v[4]) for id, (p, v) in b.conversations.items()])
        await many("insert into runs (id, conversation, root, parent, slot_turn, slot_index, open, turn, state, created_at, ended_at, body, account) select * from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bool[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bytea[], %s::bytea[])", list(b.added.values()))
        await many("insert into specs select * from unnest(%s::text[], %s::bytea[])", list(b.specs.items()))
        await many("insert into messages select * from unnest(%s::text[], %s::bigint[], %s::bytea[]) on conflict (conversation, n) do update set body = excluded.body", list({m[:2]: m for m in b.messages}.values()))
        b.changed = {k: v for k, v in b.changed.items() if k not in b.ended}
        await many("update runs set turn=t, state=s, body=b from unnest(%s::text[], %s::bigint[], %s::text[], %s::bytea[]) u(i,t,s,b) where id=i", [(k, *v) for k, v in b.changed.items()])
        await many("update runs set open=false, turn=t, state=s, body=b, ended_at=e from unnest(%s::text[], %s::bigint[], %s::text[], %s::bytea[], %s::bigint[]) u(i,t,s,b,e) where id=i", [(k, *v) for k, v in b.ended.items()])
        await many("update runs set account=b from unnest(%s::text[], %s::bytea[]) u(i,b) where id=i", list(b.accounts.items()))
        await many("insert into mail select * from unnest(%s::text[], %s::bigint[], %s::bytea[])", list(b.posted.values()))
        await many("delete from mail using unnest(%s::text[], %s::bigint[]) u(r,s) where run=r and seq=s", b.taken)
        await many("insert into outbox (key, run, state, next_at, body) select * from unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bytea[]) on conflict (key) do update set state=excluded.state, next_at=excluded.next_at, body=excluded.body", list(b.deliveries.values()))
        for t in ("definitions", "models"):
            await many(f"insert into {t} (name, body) select * from unnest(%s::text[], %s::bytea[]) on conflict (name) do update set body=excluded.body", list(getattr(b, t).values()))
        return seqs[-1] if seqs else 0
