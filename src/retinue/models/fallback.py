"""A chain of models: if one is unavailable, the next is called. The reply says which one it was.

A provider that is known to be down is passed over, but for the one call that finds out whether it
is back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from retinue.core.messages import ModelReply
from retinue.core.model_price import charged
from retinue.core.values import ModelInfo
from retinue.errors import ConfigError, ModelError
from retinue.models.base import Model, ModelRequest

GIVES_WAY = ("not_found", "quota", "overloaded", "auth", "forbidden", "tls", "redirect")
"""Failures that another model may not have. A rate limit or a broken connection is waited out
instead."""


class Fallback:
    """Its facts are those that hold for every link: the smallest window, the highest price."""

    def __init__(self, models: Sequence[Model], *, name: str) -> None:
        if not models:
            raise ConfigError(f"The chain {name!r} names no model.")
        self.models = tuple(models)
        self.says_progress = all(getattr(m, "says_progress", False) for m in models)
        infos = [m.info for m in models]
        self.info = ModelInfo(
            name=name,
            window=min(i.window for i in infos),
            max_output=min(i.max_output for i in infos),
            price_in=_most([i.price_in for i in infos]),
            price_out=_most([i.price_out for i in infos]),
            price_cache_write=_most(
                [i.price_in if i.price_cache_write is None else i.price_cache_write for i in infos]
            ),
            preamble=max(i.preamble for i in infos),
            cache_tokens=_longest([i.cache_tokens for i in infos]),
            shared_tokens=_longest([i.shared_tokens for i in infos]),
            price_cache_read=_most(
                [i.price_in if i.price_cache_read is None else i.price_cache_read for i in infos]
            ),
        )

    @property
    def most_tools(self) -> int:
        return min((most for m in self.models if (most := getattr(m, "most_tools", 0))), default=0)

    @property
    def secrets(self) -> dict[str, str]:
        tables = [getattr(model, "secrets", {}) for model in self.models]
        return {f"{name} {n}": value for n, own in enumerate(tables) for name, value in own.items()}

    @property
    def is_shut(self) -> bool:
        return all(map(_is_shut, self.models))

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        # When all are down they are waited for as if none were.
        *before, last = [m for m in self.models if not _is_shut(m)] or self.models
        for model in before:
            try:
                return _own(model, await model.complete(request, emit))
            except ModelError as error:
                if error.kind not in GIVES_WAY and not _is_shut(model):
                    raise
        return _own(last, await last.complete(request, emit))


def _own(model: Model, reply: ModelReply) -> ModelReply:
    """The reply as that of its link: it has cost what the link costs, not what the most expensive
    one does. Two providers may call a model the same, so it names the provider."""
    if model.info.priced and reply.usage.tokens and not reply.is_priced:
        reply = replace(reply, usage=charged(model.info, reply.usage), is_priced=True)
    provider = getattr(model, "provider", "")
    return replace(reply, model=f"{provider}:{reply.model}") if provider else reply


def _is_shut(model: Model) -> bool:
    return getattr(model, "is_shut", False)


def _longest(prefixes: Sequence[int]) -> int:
    """The shortest prefix that every link caches; 0 if one caches nothing."""
    return max(prefixes) if all(prefixes) else 0


def _most(prices: Sequence[int | None]) -> int | None:
    """The highest of them; unknown if one is."""
    known_prices = [p for p in prices if p is not None]
    return max(known_prices) if len(known_prices) == len(prices) else None
