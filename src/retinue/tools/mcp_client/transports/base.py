"""The port to a transport: it carries JSON-RPC messages and knows nothing of what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

Receive = Callable[[Any], bool]
"""Takes one message that came in (an unreadable one as `Unreadable`), and says whether it was of
any use."""
Lost = Callable[[str], None]
"""Called once, with the reason why nothing more will arrive."""


class Unreadable(Exception):
    """A message that could not be read: `id` is the request it may belong to."""

    def __init__(self, reason: str, id: int | None, is_too_large: bool = False) -> None:
        super().__init__(reason)
        self.id, self.is_too_large = id, is_too_large


class Transport(Protocol):
    """Contract: `open` is called once, then `send` any number of times in parallel, then `close`,
    which leaves nothing behind and may be called at any time, also twice. Where `is_inline`, `send`
    returns when the answer to that request has been received; elsewhere it returns when the message
    is out. `is_logging_in` while a login holds requests up."""

    is_inline: bool

    @property
    def is_logging_in(self) -> bool: ...

    async def open(self, receive: Receive, on_lost: Lost) -> None: ...

    async def send(self, message: dict[str, Any], headers: Mapping[str, str]) -> None: ...

    async def close(self) -> None: ...

    def tail(self) -> str:
        """What the server said last outside the protocol, for error messages."""

    def forget(self) -> None:
        """A new handshake follows: what the last one gave is void."""
