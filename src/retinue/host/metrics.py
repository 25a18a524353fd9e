"""Counters of a host in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from retinue import __version__
from retinue.cluster.status_types import ClusterStatus

STATES = ("pending", "sent", "acked", "suppressed", "dead")


def prometheus_text(
    *,
    open_runs: int,
    dormant_runs: int,
    questions: int,
    deliveries: Iterable[str],
    is_stuck: bool,
    requests: Mapping[tuple[str, int], int],
    cluster: ClusterStatus | None = None,
) -> str:
    """One family of metrics after the other, each with its help and type."""
    states = Counter(deliveries)
    counted = {f'operation="{name}",status="{status}"': n for (name, status), n in requests.items()}
    return "".join(
        (
            _family("info", "gauge", "The version of Retinue.", {f'version="{__version__}"': 1}),
            _family("open_runs", "gauge", "Runs that have not ended.", {"": open_runs}),
            _family(
                "dormant_runs", "gauge", "Open runs whose agent is not known.", {"": dormant_runs}
            ),
            _family("open_questions", "gauge", "Questions that wait for a user.", {"": questions}),
            _family(
                "deliveries",
                "gauge",
                "Announcements by state.",
                {f'state="{state}"': states[state] for state in STATES},
            ),
            _family("store_stuck", "gauge", "1 when nothing can be recorded.", {"": int(is_stuck)}),
            _family("requests_total", "counter", "Requests by operation and status.", counted),
            *([] if cluster is None else _cluster_families(cluster)),
        )
    )


def _cluster_families(now: ClusterStatus) -> Iterator[str]:
    """The same on every node, since it is read from the database."""
    workers = Counter(worker.state for worker in now.workers)
    yield _family(
        "cluster_workers",
        "gauge",
        "Workers of the database by state.",
        {f'state="{state}"': workers[state] for state in ("up", "draining", "silent")},
    )
    for name, n, help in (
        ("open_trees", now.open_trees, "Trees of runs that have not ended."),
        ("driven_trees", now.driven, "Trees that a worker drives."),
        ("due_trees", now.due, "Trees whose time has come and that no worker has."),
        ("late_seconds", round(now.late_seconds), "How long the first due tree waits."),
        ("stuck_trees", now.stuck, "Trees that are due for more than half a minute."),
        ("too_new_trees", now.too_new, "Trees that only newer workers can drive."),
        ("inbox_events", now.inbox, "Events that no worker has taken in yet."),
    ):
        yield _family(f"cluster_{name}", "gauge", help, {"": n})


def _family(name: str, kind: str, help: str, samples: Mapping[str, int]) -> str:
    full = f"retinue_{name}"
    lines = [f"# HELP {full} {help}", f"# TYPE {full} {kind}"]
    lines += [
        f"{full}{{{labels}}} {n}" if labels else f"{full} {n}" for labels, n in samples.items()
    ]
    return "\n".join(lines) + "\n"
