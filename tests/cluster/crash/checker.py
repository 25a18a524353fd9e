"""What must hold after all faults, read from the database and from the journal of the workers: no
result lost, none twice, no unsafe step repeated, nothing written by a worker that lost its tree."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

from retinue.cluster.retinue_node import RetinueNode
from retinue.core.state import Ended
from tests.cluster.crash.workload import CHILDREN
from tests.cluster.workload import rows


async def check(
    node: RetinueNode[None], url: str, roots: list[str], journal: Path
) -> dict[str, int]:
    counts: Counter[str] = Counter(
        dict.fromkeys(
            (
                "lost",
                "twice",
                "unsafe_reruns",
                "old_commits",
                "quarantined",
                "not_completed",
                "gaps",
            ),
            0,
        )
    )
    for root in roots:
        row = await node.record(root)
        state = row.run.state
        assert isinstance(state, Ended)
        counts["not_completed"] += state.ending.state != "completed"
        counts["quarantined"] += state.ending.stop == "quarantined"
        text = "\n".join(message.text for message in await node.messages(root))
        for n in range(CHILDREN):
            times = text.count(f"result of {row.spec.request.task}/{n}")
            counts["lost"] += times == 0
            counts["twice"] += times > 1
    counts["quarantined"] += await _count(
        url, "select count(*) from runs where convert_from(body, 'UTF8') like '%%quarantined%%'"
    )
    counts["lost"] += await _count(url, "select count(*) from runs where open")
    counts["gaps"] += await _count(
        url,
        "select count(*) from (select 1 from events group by root"
        " having max(number) <> count(*) or min(number) <> 1) g",
    )
    _read_journal(journal, counts)
    return dict(counts)


def _read_journal(journal: Path, counts: Counter[str]) -> None:
    paid: Counter[tuple[str, str]] = Counter()
    commits: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in journal.read_text().splitlines():
        kind, first, *rest = line.split()
        if kind == "pay":
            paid[(first, rest[0])] += 1
        else:
            commits[first].append((int(rest[1]), int(rest[0])))
    counts["unsafe_reruns"] += sum(n - 1 for n in paid.values())
    for of_tree in commits.values():
        epochs = [epoch for _, epoch in sorted(of_tree)]
        counts["old_commits"] += sum(a > b for a, b in pairwise(epochs))


async def _count(url: str, sql: str) -> int:
    ((n,),) = await rows(url, sql)
    return int(n)
