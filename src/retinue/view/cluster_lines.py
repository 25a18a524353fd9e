"""The state of a cluster as lines for a terminal: its workers as a table, then what waits. What
needs attention comes last and says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retinue.cluster.status_types import ClusterStatus, WorkerLine
from retinue.formats.safe_text import one_line
from retinue.view.format import span

HEADS = ("worker", "state", "trees", "lease", "version", "id")
UNKNOWN = "no worker is known to have it"
SILENT = "Worker {name} is silent: other workers take its trees."
STUCK = "{trees} due for more than half a minute. Check that a worker knows their agents."
TOO_NEW = "{trees} driven by a newer version of Retinue. Workers of this version leave them alone."


def status_lines(now: ClusterStatus) -> list[str]:
    return [*_table([HEADS, *map(_cells, now.workers)]), *_counts(now), *_troubles(now)]


def _cells(worker: WorkerLine) -> tuple[str, ...]:
    lease = span(worker.lease_seconds * 1000) if worker.lease_seconds > 0 else "over"
    name, version = one_line(worker.name), one_line(worker.version)
    return name, worker.state, str(worker.trees), lease, version, worker.id


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _counts(now: ClusterStatus) -> Iterator[str]:
    yield ""
    n_workers = len(now.workers)
    drive = "drives" if n_workers == 1 else "drive"
    trees = _n(now.open_trees, "open tree")
    yield f"{_n(n_workers, 'worker')} {drive} {now.driven} of {trees}."
    if now.due:
        yield f"{_n(now.due, 'tree')} due, the first for {span(now.late_seconds * 1000)}."
    if now.without_owner:
        yield f"{_n(now.without_owner, 'tree')} of workers that are gone."
    if now.inbox:
        waits = span(now.oldest_seconds * 1000)
        yield f"{_n(now.inbox, 'event')} not taken in yet, the first for {waits}."
    for lane in now.lanes:
        waiting = f"{lane.waiting} waiting"
        yield f"Lane {one_line(lane.name)}: {lane.held} of {_n(lane.size, 'slot')}, {waiting}."
    for account in now.accounts:
        pause = f", paused for {span(account.paused_seconds * 1000)}" * bool(account.paused_seconds)
        yield f"Account {one_line(account.name)}: {_n(account.calls, 'call')} under way{pause}."


def _troubles(now: ClusterStatus) -> Iterator[str]:
    for worker in now.workers:
        if worker.state == "silent":
            yield SILENT.format(name=one_line(worker.name))
    for need in now.needs:
        offers = f"offered by {_n(need.workers, 'worker')}" if need.workers else UNKNOWN
        yield f"{_n(need.trees, 'tree')} waiting for a worker with {one_line(need.name)}: {offers}."
    if now.stuck:
        yield STUCK.format(trees=_n(now.stuck, "tree"))
    if now.too_new:
        yield TOO_NEW.format(trees=_n(now.too_new, "tree"))
    if not now.workers and now.open_trees:
        yield "No worker drives them. Start one with `retinue worker`."


def _n(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
