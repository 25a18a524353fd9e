"""Prompt caches pay only if siblings do not all start at once: the first to send a prefix warms it, the others start
after its first byte. What was expected of the caches, and what they gave, is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator
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

    @contextlib.asynccontextmanager
    async def first_byte(self, prefix: tuple[object, ...], size: int) -> AsyncIterator[Warming]:
        """Wait while somebody else warms the same prefix, but not for ever; then it is one's own turn."""
        head = prefix[0]
        shared = len(head) if isinstance(head, bytes) else 0
        loop = asyncio.get_running_loop()
        if shared < LEAST:
            yield Warming(self, 0.0, None, prefix)
            return
        now = loop.time()
        warm = self._warm.get(prefix, 0.0) > now
        if not warm and (other := self._warming.get(prefix)) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await asyncio.shield(other)
            warm = self._warm.get(prefix, 0.0) > loop.time()
        mine = None
        if not warm and prefix not in self._warming:
            mine = self._warming[prefix] = loop.create_future()
        try:
            yield Warming(self, shared / max(1, size) if warm else 0.0, mine, prefix)
        finally:
            if mine is not None:
                self._warming.pop(prefix, None)
                if not mine.done():
                    mine.set_result(None)

    def _is_warm(self, prefix: tuple[object, ...]) -> None:
        self._warm[prefix] = asyncio.get_running_loop().time() + LASTS
        self._warm.move_to_end(prefix)
        while len(self._warm) > MOST:
            self._warm.popitem(last=False)


class Warming:
    """One call: it says when its first byte came, and what the provider read from its cache."""

    __slots__ = ("_mine", "_prefix", "_share", "_warmth")

    def __init__(
        self, warmth: Warmth, share: float, mine: asyncio.Future[None] | None, prefix: tuple[object, ...]
    ) -> None:
        self._warmth, self._share, self._mine, self._prefix = warmth, share, mine, prefix

    def came(self) -> None:
        if self._mine is not None and not self._mine.done():
            self._warmth._is_warm(self._prefix)
            self._mine.set_result(None)

    def counted(self, usage: Usage) -> None:
        self._warmth.prompts += usage.input
        self._warmth.expected += round(usage.input * self._share)
        self._warmth.hit += usage.cache_read
