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
MOST = 1_024


@dataclass
class Warmth:
    """Which prefixes are warm, and who is warming one. `expected` and `hit` are tokens."""

    prompts: int = 0
    expected: int = 0
    hit: int = 0
    _warm: OrderedDict[tuple[object, ...], float] = field(default_factory=OrderedDict)
    _warming: dict[tuple[object, ...], asyncio.Future[None]] = field(default_factory=dict)

    @property
    def expected_rate(self) -> float:
        return self.expected / self.prompts if self.prompts else 0.0

    @property
    def hit_rate(self) -> float:
        return self.hit / self.prompts if self.prompts else 0.0

    def first_byte(self, prefix: tuple[object, ...], size: int) -> Warming:
        """`async with` it: waits while somebody else warms the same prefix, but not for ever."""
        return Warming(self, prefix, size)

    async def _enter(self, prefix: tuple[object, ...]) -> tuple[bool, asyncio.Future[None] | None]:
        """Whether the prefix is warm by now; if it is not, and nobody is at it, the one who asks warms it."""
        loop = asyncio.get_running_loop()
        warm = self._warm.get(prefix, 0.0) > loop.time()
        if not warm and (other := self._warming.get(prefix)) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await asyncio.shield(other)
            warm = self._warm.get(prefix, 0.0) > loop.time()
        if warm or prefix in self._warming:
            return warm, None
        mine = self._warming[prefix] = loop.create_future()
        return False, mine

    def _is_warm(self, prefix: tuple[object, ...]) -> None:
        self._warm[prefix] = asyncio.get_running_loop().time() + LASTS
        self._warm.move_to_end(prefix)
        while len(self._warm) > MOST:
            self._warm.popitem(last=False)


class Warming:
    """One call: it says when its first byte came, and what the provider read from its cache."""

    __slots__ = ("_mine", "_prefix", "_share", "_size", "_warmth")

    def __init__(self, warmth: Warmth, prefix: tuple[object, ...], size: int) -> None:
        self._warmth, self._prefix, self._size = warmth, prefix, size
        self._share = 0.0
        self._mine: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Warming:
        head = self._prefix[0]
        shared = len(head) if isinstance(head, bytes) else 0
        if shared >= LEAST:
            warm, self._mine = await self._warmth._enter(self._prefix)
            self._share = shared / max(1, self._size) if warm else 0.0
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._mine is not None:
            self._warmth._warming.pop(self._prefix, None)
            if not self._mine.done():
                self._mine.set_result(None)

    def came(self) -> None:
        if self._mine is not None and not self._mine.done():
            self._warmth._is_warm(self._prefix)
            self._mine.set_result(None)

    def counted(self, usage: Usage) -> None:
        self._warmth.prompts += usage.input
        self._warmth.expected += round(usage.input * self._share)
        self._warmth.hit += usage.cache_read
