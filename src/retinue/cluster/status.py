"""What a cluster looks like now: its workers, what each owns, and what waits for too long."""

from __future__ import annotations

from typing import Any

import msgspec

from retinue.cluster.status_types import (
    AccountLine,
    ClusterStatus,
    LaneLine,
    NeedLine,
    WorkerLine,
)
from retinue.cluster.tree_format import FORMAT
from retinue.errors import NotFound
from retinue.store.postgres.connections import connect

WORKERS = """
select w.id::text, w.name, w.version, w.draining,
    extract(epoch from w.until - clock_timestamp())::float8,
    (select count(*) from trees t where t.owner = w.id)
from workers w order by w.started_at"""
TREES = """
select count(*) filter (where is_open),
    count(*) filter (where is_open and w.until > clock_timestamp()),
    count(*) filter (where owner is not null and (w.until is null or w.until <= clock_timestamp())),
    count(*) filter (where is_open and owner is null and wake_at <= clock_timestamp()),
    coalesce(extract(epoch from clock_timestamp() - min(wake_at) filter (
        where is_open and owner is null and wake_at <= clock_timestamp()))::float8, 0),
    count(*) filter (where is_open and owner is null
        and wake_at <= clock_timestamp() - interval '30 s'),
    count(*) filter (where is_open and format > %s)
from trees t left join workers w on w.id = t.owner"""
INBOX = """
select count(*), coalesce(extract(epoch from clock_timestamp() - min(at))::float8, 0) from inbox"""
LANES = """
select lane, min(size), count(*) filter (where held), count(*) filter (where not held)
from lane_slots group by lane order by lane"""
NEEDS = """
select need, count(*), (
  select count(*) from workers w
  where w.until > clock_timestamp() and not w.draining and w.offers->'labels' ? need)
from trees t, unnest(t.needs) need
where t.is_open and t.owner is null and t.wake_at <= clock_timestamp()
group by need order by need"""
ACCOUNTS = """
select p.name, coalesce(sum(c.calls), 0),
  greatest(0, extract(epoch from p.paused_until - clock_timestamp()))::float8, p.why
from pools p left join chunks c on c.pool = p.name and exists (
  select 1 from workers w where w.id = c.holder and w.until > clock_timestamp())
where c.pool is not null or p.paused_until > clock_timestamp()
group by p.name order by p.name"""
DRAIN = "update workers set draining = true where id::text = %s or name = %s"


def cluster_status(url: str) -> ClusterStatus:
    with connect(url) as db:
        workers = tuple(WorkerLine(*row) for row in db.execute(WORKERS))
        trees: Any = db.execute(TREES, (FORMAT,)).fetchone()
        inbox: Any = db.execute(INBOX).fetchone()
        lanes = tuple(LaneLine(*row) for row in db.execute(LANES))
        needs = tuple(NeedLine(*row) for row in db.execute(NEEDS))
        accounts = tuple(AccountLine(*row) for row in db.execute(ACCOUNTS))
    status = ClusterStatus(workers, lanes, *trees, *inbox)
    return msgspec.structs.replace(status, needs=needs, accounts=accounts)


def drain_worker(url: str, worker: str) -> None:
    """Ask a worker, by its id or name, to take no more trees and to let go of those it has."""
    with connect(url) as db:
        if not db.execute(DRAIN, (worker, worker)).rowcount:
            raise NotFound(
                f"No worker {worker!r}. `retinue cluster status` lists them.", "worker", worker
            )
