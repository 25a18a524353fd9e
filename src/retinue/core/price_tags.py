"""Price tags: the expected cost of a new run's first prompt, compared with the actual cost.

Siblings share a prefix: their instructions and tools, and what a fork has from another
conversation. The first that sends it gives it to the provider's cache, the others read it there; so
does a fork of a run whose last prompt is still in that cache. All of it is an estimate: of a
conversation that a provider has counted by its count, of anything else by its bytes."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from retinue.core.cache_figures import (
    BYTES_PER_TOKEN,
    LASTS_MS,
    NO_CACHE,
    Prefix,
    Tag,
    counted,
    tag,
)
from retinue.core.shared import Shared
from retinue.core.spec import ForkPoint, RunRequest, RunSpec
from retinue.core.state import Run, calls_of
from retinue.core.step_context import StepContext, size
from retinue.core.values import ModelInfo, Usage


class PrefixSource(NamedTuple):
    """Which run's conversation a fork continues, and which part of it."""

    spec: RunSpec
    run: Run
    base: ForkPoint


class Expected(NamedTuple):
    """A prompt that is to be sent to `info`. Siblings share `shared` tokens of it, by the name of
    `prefix`; `warm` tokens are in the cache already, whichever child is first; `own` are its
    own."""

    info: ModelInfo
    prefix: Prefix
    shared: int
    warm: int
    own: int

    @property
    def is_waited_for(self) -> bool:
        """Whether siblings wait until the first of them has the prefix in the cache."""
        return 0 < self.info.shared_tokens <= self.shared

    def tag(self, *, is_first: bool) -> Tag:
        """What it costs the first who sends the prefix, or one of the others."""
        cached = self.warm if is_first or not self.is_waited_for else max(self.warm, self.shared)
        return tag(self.info, self.shared + self.own, cached)


def expect(
    shared: Shared,
    request: RunRequest,
    model: str,
    now: int,
    source: PrefixSource | None,
    shared_prefix: Prefix = (),
) -> Expected:
    """The first prompt of a run. `lent` distinguishes children of one agent that do not see the
    same tools."""
    head = _head(shared, request)
    tokens, warm = (
        (head, 0) if source is None else _inherited(shared, request, model, now, source, head)
    )
    is_fork = source is not None and source.spec.request.agent == request.agent
    prefix = (
        model,
        request.agent,
        request.instructions,
        () if is_fork else shared_prefix,
        None if source is None else source.base,
    )
    own = size(request.task) + size(request.history.text)
    return Expected(shared.models[model], prefix, tokens, warm, own // BYTES_PER_TOKEN)


def _head(shared: Shared, request: RunRequest) -> int:
    """About how many tokens the instructions and the tools of a run are."""
    definition = shared.definitions.get(request.agent)
    if definition is None:
        return 0
    other = (
        0
        if request.instructions is None
        else size(request.instructions) - size(definition.instructions)
    )
    return max(0, definition.prompt_bytes + other) // BYTES_PER_TOKEN


def _inherited(
    shared: Shared, request: RunRequest, model: str, now: int, source: PrefixSource, head: int
) -> tuple[int, int]:
    """Tokens of the conversation that a fork continues, with the head, and how many of them are in
    the cache: those of the last prompt of that run, if the fork sends it again as it was."""
    spec, run, base = source
    calls = calls_of(run)
    counted_to = run.length if calls is None else calls.message
    total = (
        run.prompt
        if calls is not None and run.prompt
        else run.context + run.new_bytes // BYTES_PER_TOKEN
    )
    is_whole = base.start == run.start and base.length >= counted_to
    is_alike = request.agent == spec.request.agent and _instructions(
        shared, request
    ) == _instructions(shared, spec.request)
    if is_whole and is_alike:
        is_warm = model == spec.model and run.warm_until > now
        return total, min(run.prompt, total) if is_warm else 0
    part, whole = base.length - base.start, max(1, counted_to - run.start)
    return max(0, total - _head(shared, spec.request)) * min(part, whole) // whole + head, 0


def _instructions(shared: Shared, request: RunRequest) -> str:
    definition = shared.definitions.get(request.agent)
    if request.instructions is not None:
        return request.instructions
    return definition.instructions if definition else ""


def tagged(spec: RunSpec, parent: Run, ctx: StepContext) -> RunSpec:
    """A child that is about to be taken on, with its price tag. Later runs with the same prefix
    know."""
    request, permissions = spec.request, spec.permissions
    if request.history.kind == "run":
        info = ctx.shared.models[spec.model]
        n_by_run = max(_head(ctx.shared, request), request.history.tokens)
        return replace(spec, tag=tag(info, n_by_run + size(request.task) // BYTES_PER_TOKEN, 0))
    if (
        spec.base is None and not ctx.shared.models[spec.model].shared_tokens
    ):  # no run waits for it, nothing is warm
        own = (size(request.task) + size(request.history.text)) // BYTES_PER_TOKEN
        return replace(
            spec, tag=tag(ctx.shared.models[spec.model], _head(ctx.shared, request) + own, 0)
        )
    source = None if spec.base is None else PrefixSource(ctx.spec, parent, spec.base)
    expected = expect(
        ctx.shared, request, spec.model, ctx.now, source, (permissions.tools, permissions.deny)
    )
    is_first, prefixes = True, ctx.tree.prefixes
    if expected.is_waited_for:
        is_first = not prefixes.is_warm(expected.prefix, ctx.now)
        prefixes.send(expected.prefix, ctx.now)
    return replace(spec, tag=expected.tag(is_first=is_first))


def expected_of_cache(run: Run, ctx: StepContext) -> int:
    """Tokens of the next prompt that the provider's cache should have: a run's last prompt is the
    beginning of its next; before the first, its tag says so."""
    if run.prompt:
        return run.prompt if run.warm_until > ctx.now else 0
    return ctx.spec.tag.cached if ctx.spec.tag is not None and not run.turn else 0


def reckon(run: Run, ctx: StepContext, used: Usage, expected: int) -> Run:
    """A call is paid for: what its cache was to give and gave is counted, for the run and all runs
    above it."""
    first = ctx.spec.tag
    if expected and first is not None and not run.prompt:
        # The tag used bytes where no count was known; now the number of tokens is known.
        expected = used.input * first.cached // first.prompt
    cached = counted(ctx.model, used, expected)
    if cached is NO_CACHE:
        return run
    ctx.tree.ledger.count(run.id, cached)
    return replace(run, cache=run.cache.plus(cached))


def warm_until(ctx: StepContext, used: Usage) -> int:
    """What a provider has just read it has at hand for a while, if it is long enough for its
    cache."""
    return ctx.now + LASTS_MS if 0 < ctx.model.cache_tokens <= used.input else 0
