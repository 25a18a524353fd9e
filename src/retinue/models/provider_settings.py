"""A user's settings for a provider: limits, and for a custom one its address, API format and key
variable. Terms that they leave open are learned from its answers."""

from __future__ import annotations

from typing import Literal

from retinue.core.values import Value
from retinue.errors import ConfigError

SECOND_USD = 0.0005
"""What a second of waiting for a prompt cache is worth, in dollars: a run waits for what saves it
more than that."""


class ProviderTerms(Value):
    """For each account and model of a provider. `start_concurrent` calls begin together, and
    never more than `max_concurrent` are under way; in no minute begin more than
    `requests_per_minute` calls, or calls with prompts of more than `tokens_per_minute` tokens.
    `cache_tokens` is the shortest prefix that its prompt cache keeps (0: it has none; None: as is
    known of it), `second_usd` what a second of waiting for that cache is worth."""

    max_concurrent: int | None = None
    start_concurrent: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    cache_tokens: int | None = None
    second_usd: float = SECOND_USD

    def __post_init__(self) -> None:
        for name in (
            "max_concurrent",
            "start_concurrent",
            "requests_per_minute",
            "tokens_per_minute",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e12:
                raise ConfigError(
                    f"{name} must be more than 0, not {value!r}. Omit it for no limit."
                )
        if not 0 <= (self.cache_tokens or 0) < 1e9 or not 0 <= self.second_usd < 1e9:
            raise ConfigError("cache_tokens and second_usd must be 0 or more.")


class ProviderEntry(ProviderTerms):
    """A provider in a configuration file. `key` is the name of a variable, never a key; one of
    one's own without it needs none."""

    base_url: str | None = None
    dialect: Literal["anthropic", "openai", "openai-chat", "gemini"] | None = None
    key: str | None = None

    @property
    def is_declared(self) -> bool:
        """Whether it says more than how fast the provider is called."""
        return (self.base_url, self.dialect, self.key) != (None, None, None)
