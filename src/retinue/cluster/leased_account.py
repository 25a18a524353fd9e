"""The share of one worker in an account at a provider: how many calls it may have under way, and
how many it may start now. What it has is leased elsewhere (`provider_pools`)."""

from __future__ import annotations

import math
from collections.abc import Callable

from retinue.cluster.liveness import clock
from retinue.core.fair_division import Need, Part
from retinue.models.account_share import AccountShare
from retinue.models.governor import Governor
from retinue.models.rate_bucket import Bucket

CHUNK_SECONDS = 2.0
"""So long a chunk of a minute's calls may be used."""
ASK_SECONDS = 5.0
"""A call that waits asks again after so long, if nothing has come before."""


class LeasedAccount(AccountShare):
    """`nudge` asks for more, `pause` notifies other workers that the provider wants to be left
    alone. `is_known`: whether the pauses that others have met were read."""

    def __init__(
        self,
        name: str,
        governor: Governor,
        nudge: Callable[[], None],
        pause: Callable[[str, float, str], None],
    ) -> None:
        self.name, self.governor = name, governor
        self._nudge, self._pause = nudge, pause
        terms = governor.terms
        self.most_calls = terms.max_concurrent
        self.per_minute = (terms.requests_per_minute or 0.0, terms.tokens_per_minute or 0.0)
        self.calls = self.under_way = 0
        self.requests = self.tokens = 0.0
        self.is_known = False
        self.need = 0
        self._calls_until = self._chunk_until = -math.inf

    @property
    def is_limited(self) -> bool:
        return bool(self.most_calls or any(self.per_minute))

    @property
    def is_busy(self) -> bool:
        return bool(self.calls or self.under_way or self.governor.waiting)

    def cost(self, tokens: int) -> float:
        """What a call takes of the tokens; one that is larger than all goes when all are there."""
        return min(float(max(1, tokens)), self._burst(1)) if self.per_minute[1] else 0.0

    def _burst(self, i: int) -> float:
        """How many calls (0) or tokens (1) of a minute's may go together."""
        return max(1.0, self.per_minute[i] / 10)

    # what the governor asks

    def wait(self, tokens: int) -> float:
        self.need = tokens
        if self.is_known and self.has_call and self.has_chunk:
            return 0.0
        self._nudge()
        return ASK_SECONDS

    @property
    def has_call(self) -> bool:
        """Whether one more call may be under way."""
        if not self.most_calls:
            return True
        return self.under_way < self.calls and clock() < self._calls_until

    @property
    def has_chunk(self) -> bool:
        """Whether one more call may start in this minute."""
        requests, tokens = self.per_minute
        if not requests and not tokens:
            return True
        is_enough = (not requests or self.requests >= 1) and self.tokens >= self.cost(self.need)
        return is_enough and clock() < self._chunk_until

    def took(self, tokens: int) -> None:
        self.under_way += 1
        self.requests -= 1
        self.tokens -= self.cost(tokens)

    def left(self) -> None:
        self.under_way -= 1
        if self.calls and not self.governor.waiting:
            self._nudge()

    def cooled(self, seconds: float, why: str) -> None:
        self._pause(self.name, seconds, why)

    @property
    def why(self) -> str:  # type: ignore[override]
        if not self.is_known or (self.has_call and self.has_chunk):
            return ""
        return "the limits of the account are used up by all workers together"

    # what is leased

    def buckets(
        self, requests: float | None, tokens: float | None, age: float | None
    ) -> list[Bucket | None]:
        """What is left of a minute's calls and tokens, as it was stored `age` seconds ago; None
        where there is no limit. A chunk may be used `CHUNK_SECONDS` late: the rate is that much
        lower, so that no minute has more than the limit."""
        out: list[Bucket | None] = []
        for i, level in enumerate((requests, tokens)):
            limit, burst = self.per_minute[i], self._burst(i)
            rate = (limit - burst if limit > burst else limit) / (60 + CHUNK_SECONDS)
            stored = burst if level is None else level
            out.append(Bucket(burst, stored, rate, -(age or 0.0)) if limit else None)
        return out

    def stand_still(self) -> Need:
        """What is wanted. Until the lease is there, nothing starts but in the place of what has
        ended: others may be given the rest."""
        self.calls = min(self.calls, self.under_way)
        return Need(self.under_way, self.governor.waiting, self.cost(self.need))

    def lease(self, part: Part, need: Need, began: float, seconds: float) -> None:
        """What is ours: calls until the worker's own lease is over, the chunk of a minute's calls
        for as long as a chunk holds. What was left of the one before is dropped."""
        self.calls, self._calls_until = part.calls, began + seconds
        if part.starts:
            self.requests, self.tokens = float(part.starts), part.starts * need.tokens
            self._chunk_until = began + CHUNK_SECONDS
        self.governor.look()

    def know(self) -> None:
        """The pauses of others were read."""
        if not self.is_known:
            self.is_known = True
            self.governor.look()
