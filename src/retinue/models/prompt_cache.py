"""Delays siblings until a prompt cache is warm: the first call with a prefix fills it, the others
start after its first byte. They wait only where that saves more than the wait is worth, and what
was expected of the caches, what they gave, and what that saved is counted."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections import OrderedDict
from dataclasses import dataclass, field

from msgspec.structs import replace

from retinue.core.cache_figures import LASTS_MS, saving
from retinue.core.values import NANOS_PER_USD, ModelInfo, Usage
from retinue.models.provider_settings import SECOND_USD
from retinue.models.usage_checks import BYTES_PER_TOKEN

UNKNOWN = 4_096
"""Tokens of a prefix that every provider's cache takes which has one: no one waits in vain for one
of a new model."""
LEAST = (
    ("anthropic", re.compile(r"opus-4-[56]|haiku-4-5"), 4_096),
    ("anthropic", re.compile(r"opus-4-7|sonnet-4-6|3-5-haiku|3-haiku"), 2_048),
    ("anthropic", re.compile(r"sonnet-4|opus-4|3-[57]-sonnet|3-opus|sonnet-5"), 1_024),
    ("anthropic", re.compile(""), UNKNOWN),
    ("openai", re.compile(""), 1_024),
    ("openai-chat", re.compile(""), 1_024),
    ("azure", re.compile(""), 1_024),
    ("gemini", re.compile(r"-(1|2\.0)"), 0),
    ("gemini", re.compile(r"-2\.5"), 2_048),
    ("gemini", re.compile(""), UNKNOWN),
)
"""The shortest prefixes in tokens that caches keep, by provider and model, the first that fits.
Others have no cache, or none that is known: servers on this machine, and those that copied a
dialect."""
LASTS = LASTS_MS / 1000
PATIENCE = 20.0
FIRST_GUESS = 1.0
"""Seconds to a first byte, before one has come."""
MOST = 4_096

Prefix = tuple[object, ...]


def shortest(provider: str, dialect: str, model: str) -> int:
    """Tokens of the shortest prefix that is cached there; 0 when nothing is. A provider with
    Anthropic's dialect gets marks for what to cache, whatever its name is; elsewhere caches are the
    provider's own affair."""
    whose = provider or ("anthropic" if dialect == "anthropic" else "")
    return next((n for name, models, n in LEAST if name == whose and models.search(model)), 0)


@dataclass(eq=False)
class PromptCacheState:
    """Which prefixes are warm, and who is warming one, of one account and model with these prices.
    `least` is the shortest prefix in tokens that is cached (0: none is), `second_usd` what a second
    of waiting is worth. `prompts`, `expected` and `hit` are tokens."""

    info: ModelInfo = ModelInfo(name="")
    least: int = 0
    second_usd: float = SECOND_USD
    patience: float = PATIENCE
    prompts: int = 0
    expected: int = 0
    hit: int = 0
    expected_nanos: int = 0
    """What the caches should have saved, against prompts that are read anew."""
    saved_nanos: int = 0
    """What they did save, less what writing to them cost more."""
    waits: int = 0
    waited_seconds: float = 0.0
    first_seconds: float = FIRST_GUESS
    """About how long a first byte takes here."""
    _warm: OrderedDict[Prefix, tuple[float, int]] = field(default_factory=OrderedDict)
    _warming: dict[Prefix, asyncio.Future[None]] = field(default_factory=dict)

    @property
    def expected_rate(self) -> float:
        return self.expected / self.prompts if self.prompts else 0.0

    @property
    def hit_rate(self) -> float:
        return self.hit / self.prompts if self.prompts else 0.0

    def first_byte(self, prefix: Prefix, size: int) -> CacheWarmup:
        """`async with` it: waits while another call warms the same prefix of `size` bytes, for a
        limited time."""
        return CacheWarmup(self, prefix, size)

    def keeps(self, size: int) -> bool:
        """Whether a cache takes a prefix of so many bytes."""
        return 0 < self.least * BYTES_PER_TOKEN <= size

    def worth(self, size: int) -> float:
        """Seconds that a call may wait for a prefix of so many bytes to be warm. It saves the
        difference between writing it to the cache (where that is charged for) or reading it anew,
        and reading it from the cache."""
        if not self.least or not self.keeps(size):
            return 0.0
        saved = (
            size
            // BYTES_PER_TOKEN
            * (max(self._plain, self.info.price_cache_write or 0) - self._read)
        )
        seconds = saved / (self.second_usd * NANOS_PER_USD) if self.second_usd else self.patience
        return min(self.patience, seconds) if saved > 0 else 0.0

    def known(self, info: ModelInfo, *, is_streamed: bool) -> ModelInfo:
        """The facts about a model, with what can be expected of its cache. Siblings wait for a
        prefix if a first byte that takes as long as is guessed is worth it."""
        saved = max(self._plain, self.info.price_cache_write or 0) - self._read
        shared = 0
        if is_streamed and self.least and saved > 0:
            shared = max(
                self.least, math.ceil(FIRST_GUESS * self.second_usd * NANOS_PER_USD / saved)
            )
        return replace(info, cache_tokens=self.least, shared_tokens=shared)

    @property
    def _plain(self) -> int:
        return self.info.price_in or 0

    @property
    def _read(self) -> int:
        return self._plain if self.info.price_cache_read is None else self.info.price_cache_read

    async def _enter(self, prefix: Prefix, seconds: float) -> asyncio.Future[None] | None:
        """If the prefix is not warm, and no one is at it, the one who asks warms it. Those who
        waited for one that failed wait for the next of them, not each for itself."""
        if prefix in self._warming and not self.warm(prefix) and self.first_seconds <= seconds:
            began = asyncio.get_running_loop().time()
            self.waits += 1
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        while (
                            not self.warm(prefix)
                            and (other := self._warming.get(prefix)) is not None
                        ):
                            # The future is shared: a call that gives up must not cancel it.
                            await asyncio.shield(other)
            finally:
                self.waited_seconds += asyncio.get_running_loop().time() - began
        if self.warm(prefix) or prefix in self._warming:
            return None
        mine = self._warming[prefix] = asyncio.get_running_loop().create_future()
        return mine

    def warm(self, prefix: Prefix) -> int:
        """So many bytes of it a provider should have at hand now."""
        until, size = self._warm.get(prefix, (0.0, 0))
        return size if until > asyncio.get_running_loop().time() else 0

    def _is_warm(self, prefix: Prefix, size: int) -> None:
        self._warm[prefix] = (asyncio.get_running_loop().time() + LASTS, size)
        self._warm.move_to_end(prefix)
        while len(self._warm) > MOST:
            self._warm.popitem(last=False)

    def _done(self, prefix: Prefix, mine: asyncio.Future[None]) -> None:
        if self._warming.get(prefix) is mine:
            del self._warming[prefix]
        if not mine.done():
            mine.set_result(None)

    def counted(self, usage: Usage, expected: int = 0) -> None:
        """What a call has read from the cache, and should have."""
        self.prompts += usage.input
        self.expected += expected
        self.hit += usage.cache_read
        if expected:
            self.expected_nanos += saving(self.info, expected, 0)
        if usage.cache_read or usage.cache_write:
            self.saved_nanos += saving(self.info, usage.cache_read, usage.cache_write)


class CacheWarmup:
    """One call: it says what it sends, when its first byte came, and what the provider read from
    its cache."""

    __slots__ = ("_at", "_expected", "_mine", "_own", "_prefix", "_sent", "_shared", "_warmth")

    def __init__(self, warmth: PromptCacheState, prefix: Prefix, shared: int) -> None:
        self._warmth, self._prefix, self._shared = warmth, prefix, shared
        self._mine: asyncio.Future[None] | None = None
        self._own: Prefix = ()
        self._sent = self._expected = 0
        self._at = 0.0

    async def __aenter__(self) -> CacheWarmup:
        await self.enter()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.leave()

    async def enter(self) -> None:
        if seconds := self._warmth.worth(self._shared):
            self._mine = await self._warmth._enter(self._prefix, seconds)

    def leave(self) -> None:
        if self._mine is not None:
            self._warmth._done(self._prefix, self._mine)

    def sending(self, run: str, size: int) -> None:
        """What can be expected is known only now: the wait for a turn may have been long. A run's
        own last prompt is the longest prefix of its next."""
        warmth, self._own, self._sent = self._warmth, (run,), size
        if warmth.least:
            shared = warmth.warm(self._prefix) if warmth.keeps(self._shared) else 0
            self._expected = min(size, max(shared, warmth.warm(self._own)))
        self._at = asyncio.get_running_loop().time()

    def came(self) -> None:
        """The first byte: the waiting calls may start."""
        warmth = self._warmth
        warmth.first_seconds += (
            asyncio.get_running_loop().time() - self._at - warmth.first_seconds
        ) / 4
        if warmth.keeps(self._shared):
            warmth._is_warm(self._prefix, self._shared)
        if warmth.least and warmth.keeps(self._sent):
            warmth._is_warm(self._own, self._sent)
        if self._mine is not None:
            warmth._done(self._prefix, self._mine)

    def counted(self, usage: Usage) -> None:
        self._warmth.counted(usage, round(usage.input * self._expected / max(1, self._sent)))
