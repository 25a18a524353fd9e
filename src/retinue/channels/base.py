"""The port to the outside for announcements."""

from __future__ import annotations

from typing import Protocol

from retinue.core.values import Delivery


class Channel(Protocol):
    """Contract: `send` returns once the other side has taken the delivery, and raises otherwise. It
    may be called again with the same `delivery.key` after a crash; a channel that can should drop
    the repetition. If it also has an async `close`, that is called when the runtime stops."""

    async def send(self, delivery: Delivery, /) -> None: ...
