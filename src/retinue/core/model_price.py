"""The price of a model: in dollars per million tokens, as providers publish it, and in whole
nano-dollars per token for calculation. Unknown is unknown, never free."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from retinue.errors import ConfigError

if TYPE_CHECKING:
    from retinue.core.values import ModelInfo, Usage

NANOS_PER_MTOK = 1_000
"""A dollar for a million tokens is a thousand nano-dollars for one."""
FIELDS = {
    "price_in": "input",
    "price_out": "output",
    "price_cache_read": "cache_read",
    "price_cache_write": "cache_write",
}
"""What facts about a model have, and what a price calls it."""
UNPRICED = (
    "The price of {model!r} is unknown, so a dollar budget cannot be enforced. Set a "
    "token budget instead, declare its price, or choose a model with a price."
)


class Price(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a model costs, in dollars for a million tokens. What is read from a cache or written to
    one costs what input does, where it is not said."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name in FIELDS.values():
            value = getattr(self, name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (is_number and 0 <= value < 1e6):
                raise ConfigError(
                    f"The price {name} must be 0 or more US dollars per million tokens, "
                    f"not {value!r}."
                )

    def of(self, info: ModelInfo) -> ModelInfo:
        """The model with this price."""
        return msgspec.structs.replace(info, price=self, **dict.fromkeys(FIELDS))


def nanos(price: Any) -> int | None:
    """A price for a million tokens in nano-dollars for one, rounded up: what is kept within a
    budget stays in it."""
    return None if price is None else math.ceil(Decimal(str(price)) * NANOS_PER_MTOK)


def settle_price(info: ModelInfo) -> None:
    """A model that is given its price has it in nano-dollars, too, and the other way round."""
    if info.price is None:
        if info.price_in is not None and info.price_out is not None:
            parts = {own: _dollars(getattr(info, field)) for field, own in FIELDS.items()}
            msgspec.structs.force_setattr(info, "price", Price(**parts))  # type: ignore[arg-type]
        return
    for field, own in FIELDS.items():
        amount = nanos(getattr(info.price, own))
        if getattr(info, field) not in (None, amount):
            raise ConfigError(f"A model has a price, or {field} in nano-dollars, not both.")
        msgspec.structs.force_setattr(info, field, amount)


def _dollars(amount: int | None) -> float | None:
    return None if amount is None else amount / NANOS_PER_MTOK


def most_cost(info: ModelInfo, input_tokens: int, output_tokens: int) -> int:
    """The most that so many tokens can cost, as if the whole prompt were written to a cache."""
    if not (info.price_in or info.price_out or info.price_cache_write):
        return 0
    price_in = max(info.price_in or 0, info.price_cache_write or 0)
    return input_tokens * price_in + output_tokens * (info.price_out or 0)


def cost_of(info: ModelInfo, usage: Usage) -> int:
    """What a call has cost, its cached parts at their own prices."""
    plain = info.price_in or 0
    read = plain if info.price_cache_read is None else info.price_cache_read
    write = plain if info.price_cache_write is None else info.price_cache_write
    rest = max(0, usage.input - usage.cache_read - usage.cache_write)
    cached = usage.cache_read * read + usage.cache_write * write
    return rest * plain + cached + usage.output * (info.price_out or 0)


def charged(info: ModelInfo, usage: Usage) -> Usage:
    """Usage with its cost, where the provider does not report the cost: of what was counted exactly
    that, of what was estimated the most that a prompt can cost."""
    if usage.nanos > 0 and not usage.estimated and not usage.nanos_estimated:
        return usage
    counted = cost_of(info, usage)
    nanos = usage.nanos
    if nanos <= 0:
        nanos = counted + most_cost(info, usage.estimated, 0)
    rest = (usage.nanos_estimated or nanos - counted) if usage.estimated else 0
    rest = min(nanos, max(0, rest))
    if (nanos, rest) == (usage.nanos, usage.nanos_estimated):
        return usage
    return replace(usage, nanos=nanos, nanos_estimated=rest)
