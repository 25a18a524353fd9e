"""Limits on clients: size, rate and speed of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from retinue.host.problem_documents import HttpProblem

MOST_CLIENTS = 10_000
SMALL = 64 << 10


@dataclass(frozen=True)
class RequestLimits:
    """A body has at most `body_bytes` and comes within `body_seconds`. `per_second` requests of one
    identity are let through in the long run, `burst` in a short time; the same for failed attempts
    to sign in from one address."""

    body_bytes: int = 32 << 20
    body_seconds: float = 30.0
    per_second: float = 100.0
    burst: float = 2_000.0
    failures_per_second: float = 1.0
    failures_burst: float = 20.0


@dataclass
class TokenBuckets:
    """A bucket for each key, which fills with time."""

    per_second: float
    burst: float
    clock: Callable[[], float] = monotonic
    _levels: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, key: str) -> float:
        """0 when there was room; otherwise the seconds until there is."""
        now = self.clock()
        level, at = self._levels.get(key, (self.burst, now))
        level = min(self.burst, level + (now - at) * self.per_second)
        if level < 1:
            self._levels[key] = (level, now)
            return (1 - level) / self.per_second
        if len(self._levels) >= MOST_CLIENTS and key not in self._levels:
            self._levels.pop(next(iter(self._levels)))
        self._levels[key] = (level - 1, now)
        return 0.0


class LimitedBody:
    """The body of a request as it is received, up to its limits."""

    def __init__(self, receive: Callable[[], Any], limits: RequestLimits) -> None:
        self._receive, self._limits = receive, limits
        self._n, self.is_whole = 0, False
        self._until: float | None = None

    async def __call__(self) -> Any:
        if self.is_whole:
            return await self._receive()
        if self._until is None:
            self._until = asyncio.get_running_loop().time() + self._limits.body_seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            text = f"The body did not arrive within {self._limits.body_seconds:g} s."
            raise HttpProblem(408, text) from None
        if message["type"] == "http.request":
            self._n += len(message.get("body", b""))
            self.is_whole = not message.get("more_body", False)
            check_size(self._n, self._limits)
        return message

    async def drain(self, most: int = SMALL, seconds: float = 1.0) -> None:
        """Take what is left of a small body before it is answered: a client that is still sending
        would not get to see the answer."""
        until = asyncio.get_running_loop().time() + seconds
        while not self.is_whole and self._n <= most:
            try:
                async with asyncio.timeout_at(until):
                    message = await self()
            except (TimeoutError, HttpProblem):
                return
            if message["type"] != "http.request":
                return


def check_size(n: int, limits: RequestLimits) -> None:
    if n > limits.body_bytes:
        most = limits.body_bytes >> 20
        text = f"The request is larger than the limit of {most} MiB. Put long texts into a file."
        raise HttpProblem(413, text)
