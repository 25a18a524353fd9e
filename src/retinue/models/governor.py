"""Decides which calls may go to a provider now: one governor per account and model, for all runs.

It learns from what comes back. A 429 pauses all calls, not only the one that got it; after failures
in a row only one probe at a time is sent; a key that is refused to one call is tried by another,
and when it is refused to both, other calls get the same error, and are notified when a call has
worked; the width follows what the provider takes, within what its terms and this machine's
descriptors allow; trees take turns, so that a large one starves no one."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from retinue.core.state import REFUSALS
from retinue.errors import ModelError, ModelUnavailable
from retinue.models import machine_limits as machine
from retinue.models.account_share import ALONE, AccountShare
from retinue.models.governed_call import GovernedCall
from retinue.models.limit_headers import asked_for, limits_in, used_up
from retinue.models.outage import bare, loop_seconds
from retinue.models.provider_settings import ProviderTerms
from retinue.models.rate_bucket import Bucket, refill_rate

BREAK_AFTER = 5
PROBE_SECONDS = 5.0
SPENT_SECONDS = 60.0
FIRST_WIDTH, MAX_WIDTH, WIDTH_AFTER_OUTAGE = 64.0, 16_384.0, 4.0
RAMP_SECONDS = 0.05
"""An answer takes seconds, a refusal does not: when none has come for so long, twice as many may be
under way."""
CALM_SECONDS = 600.0
"""After a refusal the width grows slowly; after so long without another it is learned anew."""
OUTAGE = ("overloaded", "server_error", "network")
NO_ANSWER = ("bad_response", "redirect", "tls", "forbidden", machine.KIND)
MAX_COOLING = 3_600.0
LONGEST_GUESS = 60.0
FULL_SECONDS = 0.05
"""How often is looked whether a descriptor is free."""


@dataclass(eq=False)
class Governor:
    """The gate of one account and model, on the `terms` that were set. `seconds` is the clock; a
    call that fails for want of a provider (`OUTAGE`) `break_after` times in a row leaves only a
    probe every `probe_seconds`."""

    seconds: Callable[[], float] = loop_seconds
    width: float = 0.0
    """So many in parallel; 0 starts with what the terms say."""
    terms: ProviderTerms = field(default_factory=ProviderTerms)
    descriptors: machine.Descriptors = machine.DESCRIPTORS
    ramp_seconds: float = RAMP_SECONDS
    """0: only what has worked makes the width grow."""
    break_after: int = BREAK_AFTER
    probe_seconds: float = PROBE_SECONDS
    spent_seconds: float = SPENT_SECONDS
    share: AccountShare = ALONE
    in_flight: int = 0
    cool_until: float = 0.0
    failures: int = 0
    is_broken: bool = False
    next_probe: float = 0.0
    probes: int = 0
    refusal: ModelUnavailable | None = None
    """Why the whole account is refused, if it is; a call before `refused_until` gets this error
    without being sent."""
    refused_until: float = 0.0
    last_failure: ModelError | None = None
    """What a provider in trouble answered last."""
    is_sure: bool = False
    """Whether a second call was refused as well. A single one may be refused for what is in it."""
    buckets: dict[str, Bucket] = field(default_factory=dict)
    """By `requests`, `tokens`, `input-tokens` and `output-tokens`; those of the terms have `set`
    before their names."""
    hearers: dict[str, Callable[[], None]] = field(default_factory=dict)
    """Callbacks by run for when the account is no longer refused: these calls got the error without
    being sent."""
    _why: str = ""
    _finds_out: GovernedCall | None = None
    _probe: GovernedCall | None = None
    _worked_at: float = -math.inf
    _shrunk_at: float = -math.inf
    _strained_at: float = -math.inf
    _full_since: float | None = None
    _steady: float = MAX_WIDTH
    _limits_in_a_row: int = 0
    _unheard: int = 0
    _unheard_tokens: int = 0
    _trees: OrderedDict[str, OrderedDict[asyncio.Future[None], GovernedCall]] = field(
        default_factory=OrderedDict
    )
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        terms = self.terms
        self.most = min(MAX_WIDTH, float(terms.max_concurrent or MAX_WIDTH))
        self.width = min(self.most, self.width or float(terms.start_concurrent or FIRST_WIDTH))
        for name, limit in (
            ("set requests", terms.requests_per_minute),
            ("set tokens", terms.tokens_per_minute),
        ):
            if limit:
                # A tenth of a minute's may go together, and the rest evenly: so no minute has
                # more than the limit.
                some = max(1.0, limit / 10)
                self.buckets[name] = Bucket(
                    some, some, (limit - some if limit > some else limit) / 60, -math.inf
                )

    def look(self) -> None:
        """A call that waits may perhaps start."""
        if self._trees:
            self._pump()

    def turn(self, tree: str, tokens: int = 0) -> GovernedCall:
        """A turn, fairly between trees. `tokens` is about what the call will cost."""
        return GovernedCall(self, tree, tokens)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._trees.values()))

    @property
    def is_shut(self) -> bool:
        """Whether a new call has to wait for a provider that is down, or is refused."""
        if self._is_refused():
            return True
        return self.is_broken and (self._probe is not None or self.seconds() < self.next_probe)

    @property
    def why(self) -> str:
        """What is waited for, in words; nothing when nothing is."""
        now = self.seconds()
        if self.refusal is not None:
            return f"{self.refusal}; next try in {max(0.0, self.refused_until - now):.0f} s"
        if self.is_broken:
            wait = max(self.cool_until, self.next_probe) - now
            return (
                f"{self._why}; next try "
                f"{'is running' if self._probe else f'in {max(0.0, wait):.0f} s'}"
            )
        if now < self.cool_until:
            return f"{self._why}; next try in {self.cool_until - now:.0f} s"
        if self._trees and self.descriptors.is_full:
            return self.descriptors.words
        return self.share.why if self._trees else ""

    @property
    def per_minute(self) -> dict[str, float]:
        """The account's limits, as far as they were set or reported."""
        return {name: round(bucket.rate * 60, 3) for name, bucket in self.buckets.items()}

    # the gate

    def _goes_in(self, turn: GovernedCall) -> bool:
        if self.refusal is not None and self._is_refused():
            raise self._same_refusal()
        now = self.seconds()
        if self._trees or self._wait(turn, now) != 0:
            return False
        turn.at = now
        self._start(turn)
        return True

    async def _enter(self, tree: str, turn: GovernedCall) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._trees.setdefault(tree, OrderedDict())[waiter] = turn
        self._pump()
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                if waiter.exception() is None:
                    self._left(turn)
            else:
                self._forget(tree, waiter)
            raise

    def _wait(self, turn: GovernedCall, now: float) -> float | None:
        """Seconds until this turn may start; None when someone else has to leave first."""
        if self._probe is not None:
            self._mend_if_answered(now)
        wait = self.cool_until - now
        if self.refusal is not None and not self.is_sure and self._finds_out is not None:
            return None
        if self.is_broken:
            if self._probe is not None:
                start = self._probe.answered_at
                return None if start is None else max(0.0, start + self.probe_seconds - now, wait)
            wait = max(wait, self.next_probe - now)
        elif self.in_flight and self.in_flight + 1 > self.width:
            grows = self._ramp(now)
            if grows != 0:
                return grows
        if self.descriptors.is_full:
            # The call that leaves may belong to another governor.
            wait = max(wait, FULL_SECONDS)
        for name, bucket in self.buckets.items():
            lack = bucket.wait(turn.cost(name), now)
            # Whatever a header says, one call an hour finds out whether it is still so.
            is_told = not name.startswith("set ")
            wait = max(wait, min(lack, bucket.at + MAX_COOLING - now) if is_told else lack)
        # A wait that the clock cannot measure would be waited for again and again.
        return wait if wait > 1e-6 else self.share.wait(turn.tokens)

    def _ramp(self, now: float) -> float | None:
        """Seconds until the width doubles by itself, because so many are out and no one was
        refused; None if not."""
        if (
            not self.ramp_seconds
            or self.failures
            or self.width >= self.most
            or not self._is_calm(now)
        ):
            return None
        if self._full_since is None:
            self._full_since = now
        wait = self._full_since + self.ramp_seconds - now
        if wait <= 1e-6:
            self.width, self._full_since = min(self.most, 2 * self.width), None
            return 0.0
        return wait

    def _is_calm(self, now: float) -> bool:
        return now - self._strained_at >= CALM_SECONDS

    def _start(self, turn: GovernedCall) -> None:
        now = turn.at
        self.in_flight += 1
        self.descriptors.calls += 1
        self.share.took(turn.tokens)
        self._unheard += 1
        self._unheard_tokens += turn.tokens
        for name, bucket in self.buckets.items():
            bucket.take(turn.cost(name), now)
        if self.is_broken:
            self._probe = turn
            self.probes += 1
            self.next_probe = now + self.probe_seconds
        if self.refusal is not None:
            self._finds_out = turn
            if self.is_sure:
                self._keep_out(self.refusal)

    def _pump(self) -> None:
        """Admit waiting calls: the trees in turn, within a tree in order."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._trees:
            tree, waiters = next(iter(self._trees.items()))
            waiter, turn = next(iter(waiters.items()))
            if waiter.done():
                self._forget(tree, waiter)
                continue
            now = self.seconds()
            wait = self._wait(turn, now)
            if wait != 0:
                if wait is not None:
                    self._timer = asyncio.get_running_loop().call_later(wait, self._pump)
                return
            self._forget(tree, waiter)
            if tree in self._trees:
                self._trees.move_to_end(tree)
            turn.at = now
            self._start(turn)
            waiter.set_result(None)

    def _forget(self, tree: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._trees.get(tree)
        if waiters is not None and waiters.pop(waiter, None) is not None and not waiters:
            del self._trees[tree]

    # what comes back

    def _answered(self, turn: GovernedCall, status: int, headers: Mapping[str, str]) -> None:
        if not turn.is_heard:
            self._count_as_answered(turn)
        if status == 200:
            if self._probe is turn:
                turn.answered_at = self.seconds()
            if self.refusal is not None or self.hearers:
                self._accepted()
        else:
            turn.asked = asked_for(headers) or (used_up(headers) if status == 429 else 0.0)
        if limits := limits_in(headers):
            self._learn(limits, status)
        self.look()

    def _learn(self, limits: Mapping[str, tuple[float, float, float]], status: int) -> None:
        now = self.seconds()
        for name, (limit, remaining, seconds) in limits.items():
            # Those that were sent since are not in the provider's count.
            unheard_tokens = 0 if "out" in name else self._unheard_tokens
            on_the_way = self._unheard if name == "requests" else unheard_tokens
            level = remaining - on_the_way
            rate = refill_rate(limit, remaining, seconds)
            self.buckets[name] = Bucket(limit, level, rate, now)
            if name == "requests" and status == 200 and self._is_calm(now):
                self.width = max(self.width, min(self.most, level))

    def _count_as_answered(self, turn: GovernedCall) -> None:
        turn.is_heard = True
        self._unheard -= 1
        self._unheard_tokens -= turn.tokens

    def _left(self, turn: GovernedCall) -> None:
        self.in_flight -= 1
        self.descriptors.calls -= 1
        self.share.left()
        if not turn.is_heard:
            self._count_as_answered(turn)
        if self._probe is turn:
            self._probe = None
        if self._finds_out is turn:
            self._finds_out = None
        if self._trees or self._timer is not None:
            self._pump()

    def _worked(self, turn: GovernedCall) -> None:
        now = self.seconds()
        # While it is broken only the probe counts: what began before the outage may well end in it.
        if not self.is_broken or self._probe is turn:
            if self._probe is not None:
                self._mend()
            if self.refusal is not None or self.hearers:
                self._accepted()
            self.failures = self._limits_in_a_row = 0
            self._worked_at = now
        if self.width < self.most and turn.at >= self._shrunk_at:
            is_quick = self.width < self._steady or self._is_calm(now)
            self.width = min(self.most, self.width + (1.0 if is_quick else 1.0 / self.width))
        self._left(turn)

    def _failed(self, turn: GovernedCall, error: ModelError) -> None:
        if error.kind in OUTAGE or error.kind == "rate_limit":
            self.last_failure = bare(error)
        if isinstance(error, ModelUnavailable) and error.kind in OUTAGE:
            self._failed_again(turn, error)
        elif error.kind not in NO_ANSWER:  # a refusal is an answer: the provider is there
            if not self.is_broken or self._probe is turn:
                self._mend()
                self.failures = 0
            if error.kind == "rate_limit":
                self._limited(turn, error)
            if isinstance(error, ModelUnavailable) and error.kind in REFUSALS:
                self.is_sure = self.refusal is not None or error.kind == "quota"
                self.refusal = bare(error)
                if self.is_sure:
                    self._keep_out(self.refusal)
        self._left(turn)

    def _is_refused(self) -> bool:
        return self.refusal is not None and self.is_sure and self.seconds() < self.refused_until

    def _same_refusal(self) -> ModelUnavailable:
        """For calls that were not sent: it may be wrong, so there is a time to wait, and a
        notification when it no longer holds."""
        assert self.refusal is not None
        copy = bare(self.refusal)
        copy.retry_after = max(0.001, self.refused_until - self.seconds())
        copy.hearers = self.hearers
        return copy

    def _accepted(self) -> None:
        self.refusal, self.is_sure = None, False
        if not self.hearers:
            return
        hearers = dict(self.hearers)
        self.hearers.clear()
        for tell in hearers.values():
            tell()

    def _keep_out(self, refusal: ModelUnavailable) -> None:
        """Waiting calls would only get the same error. After a while one call finds out whether it
        still holds."""
        self.refusal = refusal
        seconds = self.spent_seconds if refusal.kind == "quota" else self.probe_seconds
        self.refused_until = self.seconds() + seconds
        trees, self._trees = self._trees, OrderedDict()
        for waiters in trees.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(self._same_refusal())

    def _limited(self, turn: GovernedCall, error: ModelError) -> None:
        seconds = max(turn.asked, getattr(error, "retry_after", 0.0))
        self._limits_in_a_row += turn.at >= self._shrunk_at
        guess = min(LONGEST_GUESS, 2.0 ** (min(self._limits_in_a_row, 16) - 1))
        self._shrink(turn, 0.5)
        self._cool(seconds or guess, "rate limit")

    def _failed_again(self, turn: GovernedCall, error: ModelUnavailable) -> None:
        now = self.seconds()
        self.failures += 1
        if error.kind == "overloaded":
            self._shrink(turn, 0.7)
        if seconds := max(turn.asked, error.retry_after):
            self._cool(seconds, error.kind)
        # A provider that fails now and then among successes is not down.
        long_ago = now - self._worked_at >= self.probe_seconds
        if self.failures >= self.break_after * (1 if long_ago else 4) and (
            not self.is_broken or self._probe is turn
        ):
            self._break(self.probe_seconds, f"{self.failures} failures in a row ({error.kind})")

    def _break(self, seconds: float, why: str) -> None:
        self._strained_at = now = self.seconds()
        if not self.is_broken:
            self._steady = max(WIDTH_AFTER_OUTAGE, self.width / 2)
        self.is_broken, self._why = True, why
        self.next_probe = max(self.next_probe, now + seconds)

    def _mend_if_answered(self, now: float) -> None:
        """A probe whose answer has been coming for a while has worked well enough; it may take many
        minutes."""
        probe = self._probe
        if (
            probe is not None
            and probe.answered_at is not None
            and now >= probe.answered_at + self.probe_seconds
        ):
            self._mend()

    def _mend(self) -> None:
        self._probe = None
        if self.is_broken:
            self.is_broken, self._why = False, ""
            self.width = WIDTH_AFTER_OUTAGE

    def _shrink(self, turn: GovernedCall, factor: float) -> None:
        """Once for all that were on their way together."""
        self._strained_at, self._full_since = self.seconds(), None
        if turn.at >= self._shrunk_at:
            self._shrunk_at = self.seconds()
            self.width = self._steady = max(1.0, self.width * factor)

    def _cool(self, seconds: float, why: str) -> None:
        self.cool(seconds, why)
        self.share.cooled(min(seconds, MAX_COOLING), why)

    def cool(self, seconds: float, why: str) -> None:
        """Send nothing to the provider for so long; it asked this process or another to."""
        until = self.seconds() + min(seconds, MAX_COOLING)
        if until > self.cool_until:
            self.cool_until = until
            self._why = self._why if self.is_broken else why
