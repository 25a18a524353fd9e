"""Prices and context sizes of models: as declared, else from the price list of a package. A server
on this machine or beside it is free. Unknown is unknown, never free."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from retinue.core.model_price import Price, nanos
from retinue.core.values import ModelInfo

__all__ = ["FREE", "Price", "is_near", "model_facts", "model_names"]
FREE = Price(input=0, output=0)


def is_near(url: str) -> bool:
    """Whether an address is that of this machine or of one beside it: no one sends a bill for what
    runs there."""
    host = (urlsplit(url).hostname or "").lower()
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return (
            host == "localhost"
            or host.endswith((".localhost", ".local", ".lan", ".internal"))
            or "." not in host
        )


def model_facts(
    name: str, provider: str, model: str, *, max_output: int, window: int = 200_000
) -> ModelInfo:
    """The facts about a model as far as they are known. Where a price rises with the prompt's
    length, the window ends before it does: so that a budget in dollars can be kept."""
    entry = _look_up(provider, model)
    if entry is None:
        return ModelInfo(name=name, window=window, max_output=max_output)
    facts, prices = entry
    tiers = [t.start for p in vars(prices).values() for t in getattr(p, "tiers", ())]
    return ModelInfo(
        name=name,
        window=min([facts.context_window or window, *tiers]),
        max_output=max_output,
        price_in=_nanos(getattr(prices, "input_mtok", None)),
        price_out=_nanos(getattr(prices, "output_mtok", None)),
        price_cache_read=_nanos(getattr(prices, "cache_read_mtok", None)),
        price_cache_write=_nanos(getattr(prices, "cache_write_mtok", None)),
    )


def model_names(provider: str, unless: str) -> list[str]:
    """The models of a provider in the price list; none when `unless` is one of them, or the list
    does not know the provider."""
    if _look_up(provider, unless) is not None:
        return []
    from genai_prices.data_snapshot import get_snapshot

    providers = [one for one in get_snapshot().providers if one.id == provider]
    return [model.id for one in providers for model in one.models]


def _look_up(provider: str, model: str) -> tuple[Any, Any] | None:
    if not provider:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, model_entry = get_snapshot().find_provider_model(model, None, provider, None)
        return model_entry, model_entry.get_prices(datetime.now(UTC))
    except LookupError:
        return None


def _nanos(price: Any) -> int | None:
    """The price of a list, of whose steps the first one counts."""
    return nanos(getattr(price, "base", price))
