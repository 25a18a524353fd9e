"""Facts about a model in a configuration file, which override the price list."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from retinue.core.model_price import Price
from retinue.core.values import ModelInfo, Value
from retinue.errors import ConfigError

Tokens = Annotated[int, Meta(ge=1, le=1 << 31)]


class ModelFacts(Value):
    """How much a model reads and writes, in tokens; what it costs, in dollars for a million
    tokens."""

    window: Tokens | None = None
    max_output: Tokens | None = None
    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        prices = (self.input, self.output, self.cache_read, self.cache_write)
        if (self.input is None or self.output is None) and prices != (None,) * 4:
            raise ConfigError(
                "A price has both input and output, in US dollars per million tokens."
            )
        _ = self.price

    @property
    def price(self) -> Price | None:
        if self.input is None or self.output is None:
            return None
        return Price(
            input=self.input,
            output=self.output,
            cache_read=self.cache_read,
            cache_write=self.cache_write,
        )

    def over(self, info: ModelInfo) -> ModelInfo:
        """The model with these facts."""
        info = info if self.price is None else self.price.of(info)
        return replace(
            info,
            window=self.window or info.window,
            max_output=self.max_output or info.max_output,
        )
