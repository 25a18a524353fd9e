"""Who may call a provider now: one governor for each account and model, shared by all runs.

It learns from what comes back. A 429 cools everybody, not only whoever got it; failures in a row close the way but for
one probe at a time; the width follows what the provider takes; trees take turns, so that a large one starves nobody.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from retinue.errors import ModelError, ModelUnavailable

BREAK_AFTER = 5
PROBE_SECONDS = 5.0
FIRST_WIDTH, MAX_WIDTH, WIDTH_AFTER_OUTAGE = 64.0, 1_024.0, 4.0
OUTAGE = ("overloaded", "server_error", "network")
MAX_COOLING = 3_600.0


@dataclass
class Governor:
    """The gate of one account and model. `seconds` is the clock; `why` says for people what it waits for."""

    seconds: Callable[[], float]
    width: float = FIRST_WIDTH
    in_flight: int = 0
    cool_until: float = 0.0
    failures: int = 0
    broken: bool = False
    next_probe: float = 0.0
    why: str = ""
    probes: int = 0
    _trees: OrderedDict[str, deque[asyncio.Future[None]]] = field(default_factory=OrderedDict)
    _timer: asyncio.TimerHandle | None = None

    def turn(self, tree: str) -> Turn:
        """`async with` it: waits for a turn, fairly between trees. Leaving it says how it went."""
        return Turn(self, tree)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._trees.values()))

    # the gate

    async def _enter(self, tree: str) -> None:
        if not self._trees and self._may_start():
            self._start()
            return
        waiter = asyncio.get_running_loop().create_future()
        self._trees.setdefault(tree, deque()).append(waiter)
        self._pump()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._left()
            else:
                self._forget(tree, waiter)
            raise

    def _may_start(self) -> bool:
        now = self.seconds()
        if now < self.cool_until:
            return False
        if self.broken:
            return now >= self.next_probe and self.in_flight == 0
        return self.in_flight < max(1, int(self.width))

    def _start(self) -> None:
        self.in_flight += 1
        if self.broken:
            self.probes += 1
            self.next_probe = self.seconds() + PROBE_SECONDS

    def _pump(self) -> None:
        """Let in whoever may go in: the trees in turn, within a tree in order."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._trees and self._may_start():
            tree, waiters = self._trees.popitem(last=False)
            waiter = waiters.popleft()
            if waiters:
                self._trees[tree] = waiters
            if not waiter.done():
                self._start()
                waiter.set_result(None)
        if self._trees:
            wait = max(self.cool_until, self.next_probe if self.broken else 0.0) - self.seconds()
            if wait > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._pump)

    def _forget(self, tree: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._trees.get(tree)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._trees[tree]

    # what comes back

    def _left(self) -> None:
        self.in_flight -= 1
        self._pump()

    def _worked(self, turn: Turn) -> None:
        if self.broken:
            self.width = WIDTH_AFTER_OUTAGE
        self.failures, self.broken, self.why = 0, False, ""
        self.width = min(MAX_WIDTH, self.width + 1)
        if turn.resets_in > 0:
            self._cool(turn.resets_in, "the provider's limit for this minute is used up")
        self._left()

    def _failed(self, error: ModelError) -> None:
        now = self.seconds()
        if isinstance(error, ModelUnavailable):
            if error.kind == "rate_limit":
                self.width = max(1.0, self.width / 2)
                self._cool(error.after_seconds or 1.0, "rate limit")
            elif error.kind in OUTAGE:
                self.failures += 1
                self.width = max(1.0, self.width * 0.7)
                if error.after_seconds:
                    self._cool(error.after_seconds, error.kind)
                if self.failures >= BREAK_AFTER:
                    self.broken, self.next_probe = True, now + PROBE_SECONDS
                    self.why = (
                        f"{self.failures} failures in a row ({error.kind}); one probe every {PROBE_SECONDS:.0f} s"
                    )
        else:
            # A refusal is an answer: the provider is there.
            self.failures = 0
            self.broken = False
        self._left()

    def _cool(self, seconds: float, why: str) -> None:
        self.cool_until = max(self.cool_until, self.seconds() + min(seconds, MAX_COOLING))
        self.why = f"{why}; next try in {self.cool_until - self.seconds():.0f} s"


class Turn:
    """One call on its way. The headers of the answer tell what is left of the account's limits."""

    __slots__ = ("_governor", "_tree", "resets_in")

    def __init__(self, governor: Governor, tree: str) -> None:
        self._governor, self._tree = governor, tree
        self.resets_in = 0.0

    async def __aenter__(self) -> Turn:
        await self._governor._enter(self._tree)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._governor._worked(self)
        elif isinstance(error, ModelError):
            self._governor._failed(error)
        else:
            self._governor._left()

    def heard(self, headers: Mapping[str, str]) -> None:
        self.resets_in = used_up(headers)


_LIMITS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
)
_PARTS = re.compile(r"([\d.]+)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}


def used_up(headers: Mapping[str, str]) -> float:
    """Seconds until an account's limit is filled again, if the answer says that nothing is left; otherwise 0."""
    longest = 0.0
    for left, reset in _LIMITS:
        if headers.get(left, "").strip() == "0":
            longest = max(longest, duration(headers.get(reset, "")))
    return longest


def duration(text: str) -> float:
    """`6m0s`, `1.5s`, `120ms` or plain seconds; 0 when it cannot be read."""
    text = text.strip()
    try:
        return max(0.0, float(text))
    except ValueError:
        return sum(float(n) * _UNITS[unit] for n, unit in _PARTS.findall(text)) if _PARTS.match(text) else 0.0
