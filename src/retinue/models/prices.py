"""What models cost and how much they read, from a price list that is kept by others. Unknown is unknown, never free."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from retinue.core.values import ModelInfo

NANOS_PER_MTOK = 1_000
"""A dollar for a million tokens is a thousand nano-dollars for one."""


def facts(name: str, provider: str, model: str, *, max_output: int, window: int = 200_000) -> ModelInfo:
    """The facts about a model as far as they are known. Where a price rises with the prompt's length, the window ends
    before it does: so that a budget in dollars can be kept."""
    found = _look_up(provider, model)
    if found is None:
        return ModelInfo(name=name, window=window, max_output=max_output)
    known, prices = found
    tiers = [t.start for p in vars(prices).values() for t in getattr(p, "tiers", ())]
    return ModelInfo(
        name=name,
        window=min([known.context_window or window, *tiers]),
        max_output=max_output,
        price_in=_nanos(getattr(prices, "input_mtok", None)),
        price_out=_nanos(getattr(prices, "output_mtok", None)),
        price_cache_read=_nanos(getattr(prices, "cache_read_mtok", None)),
        price_cache_write=_nanos(getattr(prices, "cache_write_mtok", None)),
    )


def _look_up(provider: str, model: str) -> tuple[Any, Any] | None:
    if not provider:
        return None
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    try:
        _, known = get_snapshot().find_provider_model(model, None, provider, None)
        return known, known.get_prices(datetime.now(UTC))
    except LookupError:
        return None


def _nanos(price: Any) -> int | None:
    """A price for a million tokens in nano-dollars for one, rounded up: what is kept within a budget stays in it."""
    base = getattr(price, "base", price)
    return None if base is None else math.ceil(Decimal(base) * NANOS_PER_MTOK)
