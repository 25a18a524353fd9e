"""What the input of new runs will cost, and what prompt caches have saved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from retinue.core.cache_figures import Cached, Prefixes, Tag
from retinue.core.price_tags import Expected, PrefixSource, expect
from retinue.core.shared import Shared
from retinue.core.spec import ForkPoint, RunRequest, RunSpec
from retinue.core.state import Run, RunRecord, calls_of
from retinue.core.values import NANOS_PER_USD


class PriceTag(msgspec.Struct, frozen=True, kw_only=True):
    """What the first prompts of `n` runs are expected to cost, all together and about: `tokens`, of
    which the provider's cache should have `cached_tokens`; `usd` with that cache,
    `usd_without_cache` without any. None: the price of a model is not known. `is_fork`: they
    continue another conversation."""

    n: int
    tokens: int
    cached_tokens: int
    usd: float | None
    usd_without_cache: float | None
    is_fork: bool = False


class CacheUse(msgspec.Struct, frozen=True, kw_only=True):
    """What prompt caches were expected to give to all calls of a run, or of a tree, and gave.
    `expected_usd` should have been saved against prompts without any cache, `saved_usd` was: both
    less what writing to a cache costs more, so that they may be below nothing. None: the price of a
    model is not known."""

    expected_tokens: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    expected_usd: float | None = 0.0
    saved_usd: float | None = 0.0


def price_tag(tags: Iterable[Tag], *, is_fork: bool = False) -> PriceTag:
    """Several tags as one."""
    tags = list(tags)
    nanos = [t.nanos for t in tags if t.nanos is not None]
    plain = [t.plain_nanos for t in tags if t.plain_nanos is not None]
    is_known = len(nanos) == len(plain) == len(tags)
    return PriceTag(
        n=len(tags),
        tokens=sum(t.prompt for t in tags),
        cached_tokens=sum(t.cached for t in tags),
        usd=sum(nanos) / NANOS_PER_USD if is_known else None,
        usd_without_cache=sum(plain) / NANOS_PER_USD if is_known else None,
        is_fork=is_fork,
    )


def cache_use(cached: Cached) -> CacheUse:
    """What was counted, for those who read it."""
    is_known = not cached.unpriced
    return CacheUse(
        expected_tokens=cached.expected,
        read_tokens=cached.read,
        written_tokens=cached.written,
        expected_usd=cached.expected_nanos / NANOS_PER_USD if is_known else None,
        saved_usd=cached.saved_nanos / NANOS_PER_USD if is_known else None,
    )


def children_tag(
    shared: Shared, spec: RunSpec, run: Run, requests: Sequence[RunRequest], now: int
) -> PriceTag | None:
    """What children would cost that a live run is about to order; None where one of them is not
    known well enough."""
    prefixes, tags = Prefixes(), []
    calls = calls_of(run)
    length = run.length if calls is None else calls.message
    for request in requests:
        definition = shared.definitions.get(request.agent)
        model = request.model or (definition.model if definition is not None else "") or spec.model
        if definition is None or model not in shared.models:
            return None
        source = None
        if request.history.kind == "fork":
            source = PrefixSource(
                spec, run, ForkPoint(conversation=spec.conversation, length=length, start=run.start)
            )
            request = msgspec.structs.replace(request, instructions=spec.request.instructions)
        expected = expect(shared, request, model, now, source)
        tags.append(expected.tag(is_first=not prefixes.is_warm(expected.prefix, now)))
        prefixes.send(expected.prefix, now)
    return price_tag(tags, is_fork=all(request.history.kind == "fork" for request in requests))


class Pricing:
    """Tags for runs that a user or program asks for. It remembers which prefixes they have in
    common."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._prefixes = Prefixes()

    def tag(
        self,
        request: RunRequest,
        now: int,
        row: RunRecord | None = None,
        base: ForkPoint | None = None,
    ) -> Tag | None:
        """The tag of a run that is about to be started, which continues that of `row` if there is
        one."""
        expected = self._expect(request, now, row, base)
        if expected is None:
            return None
        is_first = not self._prefixes.is_warm(expected.prefix, now)
        if expected.is_waited_for:
            self._prefixes.send(expected.prefix, now)
        return expected.tag(is_first=is_first)

    def tags(
        self,
        request: RunRequest,
        now: int,
        n: int,
        row: RunRecord | None = None,
        base: ForkPoint | None = None,
    ) -> PriceTag:
        """What `n` such runs would cost, none of which is started."""
        expected = self._expect(request, now, row, base)
        if expected is None or n < 1:
            return price_tag(())
        first = expected.tag(is_first=not self._prefixes.is_warm(expected.prefix, now))
        return price_tag(
            [first, *([expected.tag(is_first=False)] * (n - 1))], is_fork=base is not None
        )

    def _expect(
        self, request: RunRequest, now: int, row: RunRecord | None, base: ForkPoint | None
    ) -> Expected | None:
        definition = self._shared.definitions.get(request.agent)
        model = request.model or (definition.model if definition is not None else "")
        if model not in self._shared.models:
            return None
        source = (
            PrefixSource(row.spec, row.run, base) if row is not None and base is not None else None
        )
        return expect(
            self._shared,
            request,
            model,
            now,
            source,
            (request.permissions.tools, request.permissions.deny),
        )
