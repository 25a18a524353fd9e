"""A price of one's own, in dollars; and one that nobody knows, which is never nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from retinue import (
    Agent,
    AssistantMessage,
    ConfigError,
    ModelInfo,
    ModelReply,
    ModelRequest,
    Outcome,
    Price,
    Retinue,
    Usage,
)


def test_a_price_is_kept_in_dollars_and_reckoned_in_whole_nano_dollars() -> None:
    info = ModelInfo(price=Price(input=3, output=15, cache_read=0.3))
    assert (info.price_in, info.price_out, info.price_cache_read) == (3_000, 15_000, 300)
    assert info.price_cache_write is None and info.priced
    assert ModelInfo(price_in=3_000, price_out=15_000, price_cache_read=300) == info
    assert msgspec.json.decode(msgspec.json.encode(info), type=ModelInfo) == info
    assert (
        msgspec.json.decode(
            '{"price_in":3000,"price_out":15000,"price_cache_read":300}', type=ModelInfo
        )
        == info
    )
    assert Price(input=1, output=2).of(info).price_in == 1_000
    assert ModelInfo(price=Price(input=0.0001234, output=0)).price_in == 1, "rounded up"


def test_half_a_price_is_none_and_two_prices_are_a_mistake() -> None:
    assert ModelInfo(price_in=5).price is None and not ModelInfo(price_in=5).priced
    with pytest.raises(ConfigError, match="a price, or price_in"):
        ModelInfo(price=Price(input=1, output=1), price_in=7)
    with pytest.raises(ConfigError, match="a price, or price_out"):
        replace(ModelInfo(price=Price(input=1, output=1)), price_out=7)


class Echo:
    def __init__(self, price: Price | None) -> None:
        self.info = ModelInfo(name=f"echo at {price}", price=price)

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        usage = Usage(input=100_000, output=10_000)
        return ModelReply(message=AssistantMessage(text="Yes."), usage=usage)


def outcome_at(price: Price | None) -> Outcome[str]:
    async def main() -> Outcome[str]:
        async with Retinue() as retinue:
            return await retinue.run(Agent("echo", model=Echo(price)), "Go.")

    return asyncio.run(main())


def test_what_an_unknown_price_adds_up_to_is_unknown() -> None:
    assert outcome_at(None).cost == "unknown"
    assert outcome_at(Price(input=1, output=8)).cost == "$0.18"
    assert outcome_at(Price(input=0, output=0)).cost == "$0.00"
    priced = outcome_at(Price(input=1, output=8))
    assert replace(priced, tree_tokens_unpriced=10).cost == "more than $0.18"
    assert replace(priced, tree_usd_estimated=0.01).cost == "at most $0.18"
    both = replace(priced, tree_tokens_unpriced=10, tree_usd_estimated=0.01)
    assert both.cost == "more than $0.17", "neither a bound nor an unknown price is a fact"
