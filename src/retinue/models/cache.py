"""Prompt caches pay only if siblings do not all start at once: the first to send a prefix warms it, the others start
after its first byte. What was expected of the caches, and what they gave, is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from dataclasses import dataclass, field

from retinue.core.values import Usage

LEAST = 4_096
"""Bytes of a prefix below which no provider caches (about 1,024 tokens)."""
LASTS = 300.0
PATIENCE = 20.0
MOST = 4_096

Prefix = tuple[object, ...]


@dataclass(eq=False)
class Warmth:
    """Which prefixes are warm, and who is warming one. `prompts`, `expected` and `hit` are tokens."""

    patience: float = PATIENCE
    prompts: int = 0
    expected: int = 0
    hit: int = 0
    _warm: OrderedDict[Prefix, tuple[float, int]] = field(default_factory=OrderedDict)
    _warming: dict[Prefix, asyncio.Future[None]] = field(default_factory=dict)

    @property
    def expected_rate(self) -> float:
        return self.expected / self.prompts if self.prompts else 0.0

    @property
    def hit_rate(self) -> float:
        return self.hit / self.prompts if self.prompts else 0.0

    def first_byte(self, prefix: Prefix, size: int) -> Warming:
        """`async with` it: waits while somebody else warms the same prefix of `size` bytes, but not for ever."""
        return Warming(self, prefix, size)

    async def _enter(self, prefix: Prefix) -> asyncio.Future[None] | None:
        """If the prefix is not warm, and nobody is at it, the one who asks warms it. Those who waited for one that
        failed wait for the next of them, not each for itself."""
        if prefix in self._warming and not self.warm(prefix):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.patience):
                    while not self.warm(prefix) and (other := self._warming.get(prefix)) is not None:
                        # The future is everybody's: whoever gives up must not take it along.
                        await asyncio.shield(other)
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


class Warming:
    """One call: it says what it sends, when its first byte came, and what the provider read from its cache."""

    __slots__ = ("_expected", "_mine", "_own", "_prefix", "_sent", "_shared", "_warmth")

    def __init__(self, warmth: Warmth, prefix: Prefix, shared: int) -> None:
        self._warmth, self._prefix, self._shared = warmth, prefix, shared
        self._mine: asyncio.Future[None] | None = None
        self._own: Prefix = ()
        self._sent = self._expected = 0

    async def __aenter__(self) -> Warming:
        if self._shared >= LEAST:
            self._mine = await self._warmth._enter(self._prefix)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._mine is not None:
            self._warmth._done(self._prefix, self._mine)

    def sending(self, run: str, size: int) -> None:
        """What can be expected is known only now: the wait for a turn may have been long. A run's own last prompt is
        the longest prefix of its next."""
        warmth, self._own, self._sent = self._warmth, (run,), size
        shared = warmth.warm(self._prefix) if self._shared >= LEAST else 0
        self._expected = min(size, max(shared, warmth.warm(self._own)))

    def came(self) -> None:
        """The first byte: whoever waits may start."""
        if self._shared >= LEAST:
            self._warmth._is_warm(self._prefix, self._shared)
        if self._sent >= LEAST:
            self._warmth._is_warm(self._own, self._sent)
        if self._mine is not None:
            self._warmth._done(self._prefix, self._mine)

    def counted(self, usage: Usage) -> None:
        self._warmth.prompts += usage.input
        self._warmth.expected += round(usage.input * self._expected / max(1, self._sent))
        self._warmth.hit += usage.cache_read
