"""Amounts in cents, never in floats."""

from dataclasses import dataclass


class CurrencyMismatch(ValueError):
    """Two amounts of different currencies were added."""


@dataclass(frozen=True)
class Money:
    cents: int
    currency: str = "EUR"

    def plus(self, other: "Money") -> "Money":
        if other.currency != self.currency:
            raise CurrencyMismatch(f"{self.currency} and {other.currency}")
        return Money(self.cents + other.cents, self.currency)

    def minus(self, other: "Money") -> "Money":
        return self.plus(Money(-other.cents, other.currency))
