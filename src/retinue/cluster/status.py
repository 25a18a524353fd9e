"""What a cluster looks like now: its workers, what each owns, and what waits for too long."""

from __future__ import annotations

from typing import Any

from retinue.cluster.status_types import ClusterStatus, LaneLine, WorkerLine
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
DRAIN = "update workers set draining = true where id::text = %s or name = %s"


def cluster_status(url: str) -> ClusterStatus:
    with connect(url) as db:
        workers = tuple(WorkerLine(*row) for row in db.execute(WORKERS))
        trees: Any = db.execute(TREES, (FORMAT,)).fetchone()
        inbox: Any = db.execute(INBOX).fetchone()
        lanes = tuple(LaneLine(*row) for row in db.execute(LANES))
    return ClusterStatus(workers, lanes, *trees, *inbox)


def drain_worker(url: str, worker: str) -> None:
    """Ask a worker, by its id or name, to take no more trees and to let go of those it has."""
    with connect(url) as db:
        if not db.execute(DRAIN, (worker, worker)).rowcount:
            raise NotFound(
                f"No worker {worker!r}. `retinue cluster status` lists them.", "worker", worker
            )
