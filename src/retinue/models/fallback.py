"""A chain of models: the next is asked when the one before cannot be had. The reply says which one it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from retinue.core.values import ModelInfo, Reply
from retinue.errors import ConfigError, ModelError
from retinue.models.base import Model, Request

GIVES_WAY = ("not_found", "quota", "overloaded", "auth", "tls", "redirect")
"""Failures that another model may not have. A rate limit or a broken connection is waited out instead."""


class Fallback:
    """Its facts are those that hold for every link: the smallest window, the highest price."""

    def __init__(self, models: Sequence[Model], *, name: str) -> None:
        if not models:
            raise ConfigError(f"the chain {name!r} names no model")
        self.models = tuple(models)
        infos = [m.info for m in models]
        self.info = ModelInfo(
            name=name,
            window=min(i.window for i in infos),
            max_output=min(i.max_output for i in infos),
            price_in=_most([i.price_in for i in infos]),
            price_out=_most([i.price_out for i in infos]),
            price_cache_write=max((i.price_cache_write or 0 for i in infos), default=0) or None,
        )

    async def complete(self, request: Request, emit: Callable[[str], None]) -> Reply:
        for model in self.models[:-1]:
            try:
                return await model.complete(request, emit)
            except ModelError as error:
                if error.kind not in GIVES_WAY:
                    raise
        return await self.models[-1].complete(request, emit)


def _most(prices: Sequence[int | None]) -> int | None:
    """The highest of them; unknown if one is."""
    known = [p for p in prices if p is not None]
    return max(known) if len(known) == len(prices) else None
