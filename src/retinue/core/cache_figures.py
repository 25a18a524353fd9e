"""Figures about prompt caches: expected costs with and without the cache, expected savings, and
actual savings. Tokens and nano-dollars; an unknown price stays unknown."""

from __future__ import annotations

from retinue.core.values import ModelInfo, Usage, Value

LASTS_MS = 300_000
"""How long a cache keeps a prefix that is not read."""
BYTES_PER_TOKEN = 4
MOST_PREFIXES = 256


class Tag(Value):
    """What the first prompt of a run is expected to be, said before it is sent: about `prompt`
    tokens, of which the provider's cache should have `cached`. `nanos` is what it costs so,
    `plain_nanos` what it would cost without any cache; None where the price is not known."""

    prompt: int
    cached: int = 0
    nanos: int | None = None
    plain_nanos: int | None = None


class Cached(Value):
    """What caches were expected to give, and gave. `expected`, `read` and `written` are tokens of
    prompts. `expected_nanos` is what should have been saved against prompts without any cache, and
    `saved_nanos` what was: both less what writing to a cache costs more, so that they may be below
    nothing. `unpriced` of the tokens have no price that is known, and are not in the nanos."""

    expected: int = 0
    read: int = 0
    written: int = 0
    expected_nanos: int = 0
    saved_nanos: int = 0
    unpriced: int = 0

    def plus(self, other: Cached) -> Cached:
        return Cached(
            expected=self.expected + other.expected,
            read=self.read + other.read,
            written=self.written + other.written,
            expected_nanos=self.expected_nanos + other.expected_nanos,
            saved_nanos=self.saved_nanos + other.saved_nanos,
            unpriced=self.unpriced + other.unpriced,
        )


NO_CACHE = Cached()


def saving(info: ModelInfo, read: int, n_written: int) -> int:
    """What a cache saves that is read and written so much."""
    plain = info.price_in or 0
    less = 0 if info.price_cache_read is None else plain - info.price_cache_read
    more = 0 if info.price_cache_write is None else info.price_cache_write - plain
    return read * less - n_written * more


def expected_saving(info: ModelInfo, prompt: int, cached: int) -> int:
    """What a cache should save of a prompt: what it does not have, it is given."""
    return saving(info, cached, prompt - cached) if 0 < info.cache_tokens <= prompt else 0


def tag(info: ModelInfo, prompt: int, cached: int) -> Tag:
    """A prompt of so many tokens, of which so many should be in the cache."""
    cached = min(prompt, cached) if 0 < info.cache_tokens <= cached else 0
    if info.price_in is None:
        return Tag(prompt=prompt, cached=cached)
    plain = prompt * info.price_in
    nanos = plain - expected_saving(info, prompt, cached)
    return Tag(prompt=prompt, cached=cached, nanos=nanos, plain_nanos=plain)


def counted(info: ModelInfo, usage: Usage, expected: int) -> Cached:
    """What one call came to, of which the cache should have had so many tokens."""
    expected = min(expected, usage.input)
    read, n_written = usage.cache_read, usage.cache_write
    if not (expected or read or n_written):
        return NO_CACHE
    if info.price_in is None:
        return Cached(
            expected=expected,
            read=read,
            written=n_written,
            unpriced=max(expected, read + n_written),
        )
    return Cached(
        expected=expected,
        read=read,
        written=n_written,
        expected_nanos=expected_saving(info, usage.input, expected),
        saved_nanos=saving(info, read, n_written),
    )


Prefix = tuple[object, ...]


class Prefixes:
    """What was sent lately, or is about to be: a run that sends the same again should find it in
    the cache."""

    def __init__(self) -> None:
        self._until: dict[Prefix, int] = {}

    def is_warm(self, prefix: Prefix, now: int) -> bool:
        return self._until.get(prefix, 0) > now

    def send(self, prefix: Prefix, now: int) -> None:
        self._until.pop(prefix, None)
        self._until[prefix] = now + LASTS_MS
        if len(self._until) > MOST_PREFIXES:
            del self._until[next(iter(self._until))]
