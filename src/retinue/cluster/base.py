"""The port to a dispatcher, which assigns trees to workers.

The log stays the truth; a dispatcher promises one thing: after a `wake` is committed, `drive` is
called with this tree at least once, on some worker. It may be called for a tree that has an owner
or nothing to do: then it returns immediately and changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from psycopg import AsyncConnection

Drive = Callable[[str], Awaitable[None]]
"""Own a tree until nothing is left to do in it for now."""
Due = Callable[[int], Awaitable[list[str]]]
"""At most so many trees that want to be driven and that no living worker owns."""
Connection = AsyncConnection[Any]


class Dispatcher(Protocol):
    """Contract: tests/contracts/dispatcher.py, which every implementation runs."""

    async def open(self) -> None:
        """Connect, and bring tables of one's own up to date."""

    async def wake(self, connection: Connection, tree: str) -> None:
        """Have a tree driven. What a dispatcher keeps in PostgreSQL is written over this connection
        and becomes true when its transaction is committed; others act in `woken`."""

    async def woken(self, tree: str) -> None:
        """The transaction of `wake` was committed."""

    async def work(self, drive: Drive, due: Due, at_once: int) -> None:
        """Drive trees, at most so many at the same time, until this is cancelled; then cancel what
        is under way. Trees that are `due` without a wake, because a worker died, are found too."""

    async def abort(self, tree: str) -> None:
        """Cancel the call of `drive` for a tree, in whichever process it runs."""

    async def close(self) -> None:
        """Let go of connections."""
