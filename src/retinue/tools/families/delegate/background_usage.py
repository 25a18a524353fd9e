"""The background work of an agent and its cost: its groups, and the tokens that sub-agents used in
the last hour, over all trees of a runtime. A grant counts from the moment it is given: a claim
represents it until its runs are recorded, so that two calls never get the same rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from retinue.core.spec import RunSpec
from retinue.core.state import RunRecord, ending_of
from retinue.tools.base import Context, RuntimeReader
from retinue.tools.families.base import reader_of

NAME = "delegate"
HOUR_MS = 3_600_000
CLAIM_SECONDS = 60.0
"""Far longer than a request takes from its tool to the log; a claim that the machine refused is
free again after it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a call was granted. `first` is the id that its first run will have."""

    run: str
    turn: int
    agent: str
    first: str
    group: str
    tokens: int
    until: float


_CLAIMS: WeakKeyDictionary[RuntimeReader, dict[str, Claim]] = WeakKeyDictionary()
"""By runtime, then by call: agents with families of their own share one hour."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The runs that sub-agents of this family are, and the claims that are not among them yet."""

    rows: Sequence[RunRecord]
    claims: Sequence[Claim]
    at: int

    def n_groups(self, agent: str) -> int:
        """How many background groups of an agent are at work, whichever of its runs has started
        them."""
        groups = {(c.run, c.group) for c in self.claims if c.agent == agent and c.group}
        for spec, run in self.rows:
            request = spec.request
            if (
                request.agent == agent
                and request.group_kind == NAME
                and request.group
                and ending_of(run) is None
            ):
                groups.add((spec.parent, request.group))
        return len(groups)

    def n_tokens(self) -> int:
        """What the last hour counts: an open task with what it was granted, one that has ended with
        what it used. What a nested task takes is part of what the task above it was granted."""
        by_id = {record.spec.id: record for record in self.rows if is_task(record.spec)}
        total = sum(c.tokens for c in self.claims)
        for spec, run in by_id.values():
            if _is_covered(spec, by_id):
                continue
            ending = ending_of(run)
            if ending is None:
                total += max(run.usage.tokens, spec.request.budget.tokens or 0)
            elif ending.at > self.at - HOUR_MS:
                total += run.usage.tokens
        return total


def is_task(spec: RunSpec) -> bool:
    """Whether a run is a sub-agent of this family."""
    return spec.request.agent.endswith(f".{NAME}")


def _is_covered(spec: RunSpec, by_id: dict[str, RunRecord]) -> bool:
    above = by_id.get(spec.parent)
    while above is not None:
        if ending_of(above[1]) is None:
            return True
        above = by_id.get(above[0].parent)
    return False


async def tally(context: Context, since: int) -> Tally:
    """What is on record since then, and what was claimed meanwhile. Claim before you wait for
    anything else."""
    look = reader_of(context)
    rows = await look.started(since)
    claims, now = _CLAIMS.setdefault(look, {}), asyncio.get_running_loop().time()
    for key in [key for key, claim in claims.items() if claim.until <= now]:
        del claims[key]
    ids = {spec.id for spec, _ in rows}
    unseen = [c for c in claims.values() if c.first not in ids and not _is_settled(c, context)]
    return Tally(rows, unseen, context.called_at)


def _is_settled(claim: Claim, context: Context) -> bool:
    """The claim is of an earlier turn of the same run: it is on record by now, or was refused."""
    return claim.run == context.run_id and claim.turn < context.row.turn


def claim(context: Context, agent: str, group: str, tokens: int) -> None:
    until = asyncio.get_running_loop().time() + CLAIM_SECONDS
    _CLAIMS.setdefault(reader_of(context), {})[context.key] = Claim(
        run=context.run_id,
        turn=context.row.turn,
        agent=agent,
        first=context.child_id(),
        group=group,
        tokens=tokens,
        until=until,
    )
