"""A provider behind a governor, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from retinue.errors import ModelError, ModelUnavailable
from retinue.models.governor import Governor
from retinue.testing import run_virtual

NOW = "Mon, 16 Nov 2026 12:00:00 GMT"


def overloaded(after: float = 0.0) -> ModelUnavailable:
    return ModelUnavailable("Overloaded", "overloaded", after)


def limited(after: float = 0.0) -> ModelUnavailable:
    return ModelUnavailable("Slow down", "rate_limit", after)


class Account:
    """A provider behind a governor: what began when, and how much of it at once."""

    def __init__(self, **fields: Any) -> None:
        # What grows by itself, because time passes, has tests of its own.
        self.governor = Governor(**{"ramp_seconds": 0.0, **fields})
        self.starts: list[tuple[float, str]] = []
        self.now = self.most = 0

    async def call(
        self,
        tree: str = "t",
        seconds: float = 1.0,
        error: ModelError | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        status: int = 200,
        tokens: int = 0,
    ) -> None:
        async with self.governor.turn(tree, tokens) as turn:
            self.starts.append((asyncio.get_running_loop().time(), tree))
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                if headers is not None:
                    turn.answered(status, headers)
                await asyncio.sleep(seconds)
                if error is not None:
                    raise error
            finally:
                self.now -= 1

    async def quietly(self, *args: Any, **fields: Any) -> str:
        """A call whose failure is a word."""
        try:
            await self.call(*args, **fields)
        except ModelError as error:
            return error.kind
        return "ok"

    def times(self) -> list[float]:
        return [at for at, _ in self.starts]


def virtually(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        run_virtual(story())

    test.__name__ = story.__name__
    return test
