"""How what several workers want of one account is divided among them: together they never have more
than there is, and none gets less than another who got more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class WorkerClaim(NamedTuple):
    """What a worker has and wants: calls at a time, and whether a call `lacks` a place in the
    current minute."""

    calls: int = 0
    wanted: int = 0
    lacks: bool = False


class Need(NamedTuple):
    """What a worker wants now: calls that are under way, calls that wait, and the tokens that the
    next one of these costs."""

    under_way: int
    waiting: int
    tokens: float


class Level(NamedTuple):
    """What is there: calls at a time, and what may start now of a minute's calls and tokens. None:
    without a limit."""

    calls: int | None
    requests: float | None
    tokens: float | None


class Part(NamedTuple):
    """What a worker gets: so many calls at a time, and so many that it may start now. `lacks`: it
    could start more if more of the minute were left. If more calls are under way than that, it
    holds these until they end."""

    calls: int
    starts: int
    lacks: bool


def fair_shares(size: int, wants: Sequence[int]) -> list[int]:
    """What each may have of `size`. What does not divide goes to those who come first."""
    out, rest = [0] * len(wants), size
    active = [i for i, want in enumerate(wants) if want > 0]
    while rest > 0 and active:
        each = max(1, rest // len(active))
        for i in active:
            more = min(each, wants[i] - out[i], rest)
            out[i] += more
            rest -= more
        active = [i for i in active if out[i] < wants[i]]
    return out


def divide(claims: Sequence[WorkerClaim], me: int, need: Need, level: Level) -> Part:
    """What worker number `me` gets. The claims are in the order in which the workers were given
    something last, the longest ago first: that is also the order of those who are next."""
    calls = _calls(claims, me, need, level)
    demand = need.waiting if level.calls is None else min(need.waiting, calls - need.under_way)
    if demand <= 0 or (level.requests is None and level.tokens is None):
        return Part(calls, 0, False)
    before = any(claim.lacks for claim in claims[:me])
    starts = 0 if before else _starts(claims, me, need, level, demand)
    return Part(calls, starts, starts < demand)


def _calls(claims: Sequence[WorkerClaim], me: int, need: Need, level: Level) -> int:
    """The fair share, but never what another still has."""
    if level.calls is None:
        return 0
    wants = [claim.wanted for claim in claims]
    wants[me] = need.under_way + need.waiting
    free = level.calls - sum(claim.calls for i, claim in enumerate(claims) if i != me)
    return max(0, min(fair_shares(level.calls, wants)[me], free))


def _starts(claims: Sequence[WorkerClaim], me: int, need: Need, level: Level, demand: int) -> int:
    """A part of what may start now, the others' part being left to them, but one call at least."""
    n_others = sum(claim.lacks for i, claim in enumerate(claims) if i != me)
    most = math.inf if level.requests is None else level.requests
    if level.tokens is not None:
        most = min(most, level.tokens / need.tokens if need.tokens else math.inf)
    if most < 1:
        return 0
    return min(demand, max(1, math.floor(min(most, demand * (1 + n_others)) / (1 + n_others))))
