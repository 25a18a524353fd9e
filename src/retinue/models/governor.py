"""Who may call a provider now: one governor for each account and model, shared by all runs.

It learns from what comes back. A 429 cools everybody, not only whoever got it; failures in a row close the way but for
one probe at a time; the width follows what the provider takes; trees take turns, so that a large one starves nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from retinue.errors import ModelError, ModelUnavailable

BREAK_AFTER = 5
PROBE_SECONDS = 5.0
SPENT_SECONDS = 60.0
FIRST_WIDTH, MAX_WIDTH, WIDTH_AFTER_OUTAGE = 64.0, 1_024.0, 4.0
OUTAGE = ("overloaded", "server_error", "network")
NO_ANSWER = ("bad_response", "redirect", "tls")
MAX_COOLING = 3_600.0
LONGEST_GUESS = 60.0


def loop_seconds() -> float:
    """The clock of the loop; outside of one, which is only for looking, the one that loops go by."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


@dataclass(slots=True)
class Bucket:
    """What is left of a limit, as the provider last told it, filling up again at `rate` a second."""

    limit: float
    level: float
    rate: float
    at: float

    def left(self, now: float) -> float:
        return min(self.limit, self.level + self.rate * (now - self.at))

    def wait(self, cost: float, now: float) -> float:
        """Seconds until there is enough. What is larger than the limit goes when the bucket is full."""
        return max(0.0, (min(cost, self.limit) - self.left(now)) / self.rate)

    def take(self, cost: float, now: float) -> None:
        self.level, self.at = self.left(now) - cost, now


class Turn:
    """One call. `async with` it: entering waits for the turn, leaving says how it went. `asked` is how long the
    provider wants to be left alone."""

    __slots__ = ("_governor", "_tree", "answered_at", "asked", "at", "is_heard", "tokens")

    def __init__(self, governor: Governor, tree: str, tokens: int) -> None:
        self._governor, self._tree, self.tokens = governor, tree, tokens
        self.at = self.asked = 0.0
        self.answered_at: float | None = None
        self.is_heard = False

    async def __aenter__(self) -> Turn:
        await self._governor._enter(self._tree, self)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._governor._worked(self)
        elif isinstance(error, ModelError):
            self._governor._failed(self, error)
        else:
            self._governor._left(self)

    def heard(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer has begun; its headers tell what is left of the account's limits."""
        self._governor._heard(self, status, headers)


@dataclass(eq=False)
class Governor:
    """The gate of one account and model. `seconds` is the clock; a call that fails for want of a provider (`OUTAGE`)
    `break_after` times in a row leaves only a probe every `probe_seconds`."""

    seconds: Callable[[], float] = loop_seconds
    width: float = FIRST_WIDTH
    break_after: int = BREAK_AFTER
    probe_seconds: float = PROBE_SECONDS
    spent_seconds: float = SPENT_SECONDS
    in_flight: int = 0
    cool_until: float = 0.0
    failures: int = 0
    is_broken: bool = False
    next_probe: float = 0.0
    probes: int = 0
    buckets: dict[str, Bucket] = field(default_factory=dict)
    """By `requests`, `tokens`, `input-tokens` and `output-tokens`."""
    _why: str = ""
    _probe: Turn | None = None
    _worked_at: float = -math.inf
    _shrunk_at: float = -math.inf
    _steady: float = MAX_WIDTH
    _limits_in_a_row: int = 0
    _unheard: int = 0
    _unheard_tokens: int = 0
    _trees: OrderedDict[str, OrderedDict[asyncio.Future[None], Turn]] = field(default_factory=OrderedDict)
    _timer: asyncio.TimerHandle | None = None

    def turn(self, tree: str, tokens: int = 0) -> Turn:
        """A turn, fairly between trees. `tokens` is about what the call will cost."""
        return Turn(self, tree, tokens)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._trees.values()))

    @property
    def is_shut(self) -> bool:
        """Whether whoever comes now has to wait for a provider that is down."""
        return self.is_broken and (self._probe is not None or self.seconds() < self.next_probe)

    @property
    def why(self) -> str:
        """What is waited for, in words; nothing when nothing is."""
        now = self.seconds()
        if self.is_broken:
            wait = max(self.cool_until, self.next_probe) - now
            return f"{self._why}; the next try is {'under way' if self._probe else f'in {max(0.0, wait):.0f} s'}"
        return f"{self._why}; the next try is in {self.cool_until - now:.0f} s" if now < self.cool_until else ""

    @property
    def per_minute(self) -> dict[str, float]:
        """The account's limits, as far as the provider's headers have told them."""
        return {name: round(bucket.rate * 60, 3) for name, bucket in self.buckets.items()}

    # the gate

    async def _enter(self, tree: str, turn: Turn) -> None:
        if not self._trees and self._wait(turn) == 0:
            self._start(turn)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._trees.setdefault(tree, OrderedDict())[waiter] = turn
        self._pump()
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self._left(turn)
            else:
                self._forget(tree, waiter)
            raise

    def _wait(self, turn: Turn) -> float | None:
        """Seconds until this turn may start; None when somebody else has to leave first."""
        now = self.seconds()
        self._mend_if_answered(now)
        wait = self.cool_until - now
        if self.is_broken:
            if self._probe is not None:
                begun = self._probe.answered_at
                return None if begun is None else max(0.0, begun + self.probe_seconds - now, wait)
            wait = max(wait, self.next_probe - now)
        elif self.in_flight >= max(1, int(self.width)):
            return None
        for name, bucket in self.buckets.items():
            wait = max(wait, bucket.wait(_cost(name, turn), now))
        # A wait that the clock cannot measure would be waited for again and again.
        return wait if wait > 1e-6 else 0.0

    def _start(self, turn: Turn) -> None:
        now = turn.at = self.seconds()
        self.in_flight += 1
        self._unheard += 1
        self._unheard_tokens += turn.tokens
        for name, bucket in self.buckets.items():
            bucket.take(_cost(name, turn), now)
        if self.is_broken:
            self._probe = turn
            self.probes += 1
            self.next_probe = now + self.probe_seconds

    def _pump(self) -> None:
        """Let in whoever may go in: the trees in turn, within a tree in order."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._trees:
            tree, waiters = next(iter(self._trees.items()))
            waiter, turn = next(iter(waiters.items()))
            if waiter.done():
                self._forget(tree, waiter)
                continue
            wait = self._wait(turn)
            if wait != 0:
                if wait is not None:
                    self._timer = asyncio.get_running_loop().call_later(wait, self._pump)
                return
            self._forget(tree, waiter)
            if tree in self._trees:
                self._trees.move_to_end(tree)
            self._start(turn)
            waiter.set_result(None)

    def _forget(self, tree: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._trees.get(tree)
        if waiters is not None and waiters.pop(waiter, None) is not None and not waiters:
            del self._trees[tree]

    # what comes back

    def _heard(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None:
        now = self.seconds()
        self._count_as_heard(turn)
        if status == 200:
            turn.answered_at = now
        else:
            turn.asked = asked_for(headers) or (used_up(headers) if status == 429 else 0.0)
        for name, (limit, left, seconds) in limits_in(headers).items():
            # Those that were sent since are not in the provider's count.
            on_the_way = self._unheard if name == "requests" else self._unheard_tokens if "out" not in name else 0
            rate = (limit - left) / seconds if 0 <= left < limit and seconds > 0 else limit / 60
            self.buckets[name] = Bucket(limit, left - on_the_way, max(rate, limit / 86_400), now)
        if self._trees:
            self._pump()

    def _count_as_heard(self, turn: Turn) -> None:
        if not turn.is_heard:
            turn.is_heard = True
            self._unheard -= 1
            self._unheard_tokens -= turn.tokens

    def _left(self, turn: Turn) -> None:
        self.in_flight -= 1
        self._count_as_heard(turn)
        if self._probe is turn:
            self._probe = None
        self._pump()

    def _worked(self, turn: Turn) -> None:
        # While it is broken only the probe counts: what began before the outage may well end in it.
        if not self.is_broken or self._probe is turn:
            self._mend()
            self.failures = self._limits_in_a_row = 0
            self._worked_at = self.seconds()
        if turn.at >= self._shrunk_at:
            self.width = min(MAX_WIDTH, self.width + (1.0 if self.width < self._steady else 1.0 / self.width))
        self._left(turn)

    def _failed(self, turn: Turn, error: ModelError) -> None:
        if isinstance(error, ModelUnavailable) and error.kind in OUTAGE:
            self._failed_again(turn, error)
        elif isinstance(error, ModelUnavailable) and error.kind == "quota":
            self._break(self.spent_seconds, "the account is spent")
        elif error.kind not in NO_ANSWER:
            # A refusal is an answer: the provider is there.
            if not self.is_broken or self._probe is turn:
                self._mend()
                self.failures = 0
            if error.kind == "rate_limit":
                self._limited(turn, error)
        self._left(turn)

    def _limited(self, turn: Turn, error: ModelError) -> None:
        asked = max(turn.asked, getattr(error, "after_seconds", 0.0))
        self._limits_in_a_row += turn.at >= self._shrunk_at
        guess = min(LONGEST_GUESS, 2.0 ** (min(self._limits_in_a_row, 16) - 1))
        self._shrink(turn, 0.5)
        self._cool(asked or guess, "rate limit")

    def _failed_again(self, turn: Turn, error: ModelUnavailable) -> None:
        now = self.seconds()
        self.failures += 1
        if error.kind == "overloaded":
            self._shrink(turn, 0.7)
        if asked := max(turn.asked, error.after_seconds):
            self._cool(asked, error.kind)
        # A provider that fails now and then among successes is not down.
        long_ago = now - self._worked_at >= self.probe_seconds
        if self.failures >= self.break_after * (1 if long_ago else 4) and (not self.is_broken or self._probe is turn):
            self._break(self.probe_seconds, f"{self.failures} failures in a row ({error.kind})")

    def _break(self, seconds: float, why: str) -> None:
        now = self.seconds()
        if not self.is_broken:
            self._steady = max(WIDTH_AFTER_OUTAGE, self.width / 2)
        self.is_broken, self._why = True, why
        self.next_probe = max(self.next_probe, now + seconds)

    def _mend_if_answered(self, now: float) -> None:
        """A probe whose answer has been coming for a while has worked well enough; it may take many minutes."""
        probe = self._probe
        if probe is not None and probe.answered_at is not None and now >= probe.answered_at + self.probe_seconds:
            self._mend()

    def _mend(self) -> None:
        self._probe = None
        if self.is_broken:
            self.is_broken, self._why = False, ""
            self.width = WIDTH_AFTER_OUTAGE

    def _shrink(self, turn: Turn, factor: float) -> None:
        """Once for all that were on their way together."""
        if turn.at >= self._shrunk_at:
            self._shrunk_at = self.seconds()
            self.width = self._steady = max(1.0, self.width * factor)

    def _cool(self, seconds: float, why: str) -> None:
        until = self.seconds() + min(seconds, MAX_COOLING)
        if until > self.cool_until:
            self.cool_until = until
            self._why = self._why if self.is_broken else why


def _cost(name: str, turn: Turn) -> float:
    """What a call takes out of a bucket. How much it will say is not known: there the bucket must not be empty."""
    return 1.0 if name in ("requests", "output-tokens") else float(max(1, turn.tokens))


_LIMIT = re.compile(
    r"x-ratelimit-(?P<a>limit|remaining|reset)-(?P<b>requests|tokens)"
    r"|anthropic-ratelimit-(?P<c>requests|tokens|input-tokens|output-tokens)-(?P<d>limit|remaining|reset)",
    re.IGNORECASE,
)
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def limits_in(headers: Mapping[str, str]) -> dict[str, tuple[float, float, float]]:
    """Limit, what is left of it, and seconds until it is full again, by name, where the headers tell all three."""
    found: dict[str, dict[str, str]] = {}
    for header, value in headers.items():
        if "limit" in header.lower() and (match := _LIMIT.fullmatch(header)) is not None:
            found.setdefault((match["b"] or match["c"]).lower(), {})[(match["a"] or match["d"]).lower()] = value
    out = {}
    for name, told in found.items():
        limit, left = _number(told.get("limit", "")), _number(told.get("remaining", ""))
        if limit is not None and limit > 0 and left is not None:
            out[name] = (limit, min(left, limit), until(told.get("reset", ""), headers))
    return out


def used_up(headers: Mapping[str, str]) -> float:
    """Seconds until an account's limits are filled again, as far as the answer says that nothing is left."""
    return max((seconds for _, left, seconds in limits_in(headers).values() if left <= 0), default=0.0)


def asked_for(headers: Mapping[str, str]) -> float:
    """`Retry-After` in seconds, as a number or as a date, or `retry-after-ms`; 0 when there is none."""
    found = {name.lower(): value for name, value in headers.items() if name.lower().startswith("retry-after")}
    exact = _number(found.get("retry-after-ms", ""))
    if exact is not None:
        return exact / 1_000
    return until(found.get("retry-after", ""), headers)


def until(text: str, headers: Mapping[str, str]) -> float:
    """Seconds: a number, `6m0s`, or the time from now to a date, by the provider's own clock if it tells it."""
    text = text.strip()
    if (seconds := _number(text)) is not None:
        return seconds
    if text and not _PARTS.sub("", text):
        return sum(float(n) * _UNITS[unit] for n, unit in _PARTS.findall(text))
    then = _date(text)
    if then is None:
        return 0.0
    told = next((value for name, value in headers.items() if name.lower() == "date"), "")
    return max(0.0, (then - (_date(told) or datetime.now(UTC))).total_seconds())


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def _date(text: str) -> datetime | None:
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with contextlib.suppress(ValueError, TypeError, IndexError, OverflowError):
            date = read(text)
            return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return None
