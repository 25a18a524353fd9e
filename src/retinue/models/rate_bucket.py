"""A limit per minute."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Bucket:
    """What is left of a limit, as the provider last reported it, filling up again at `rate` a
    second."""

    limit: float
    level: float
    rate: float
    at: float

    def left(self, now: float) -> float:
        return min(self.limit, self.level + self.rate * (now - self.at))

    def wait(self, cost: float, now: float) -> float:
        """Seconds until there is enough. What is larger than the limit goes when the bucket is
        full."""
        return max(0.0, (min(cost, self.limit) - self.left(now)) / self.rate)

    def take(self, cost: float, now: float) -> None:
        self.level, self.at = self.left(now) - cost, now


def refill_rate(limit: float, remaining: float, seconds: float) -> float:
    """How much comes back each second, if a limit is full again after `seconds`; without a usable
    time, as much as a limit per minute brings. Never so little that a call waits over a day."""
    is_usable = 0 <= remaining < limit and seconds > 0
    rate = (limit - remaining) / seconds if is_usable else limit / 60
    return max(rate, limit / 86_400)
