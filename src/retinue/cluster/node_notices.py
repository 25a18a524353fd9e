"""Short notifications between nodes, over PostgreSQL's NOTIFY. Each is a hint and nothing more:
what it points to is in a row, and is found without it, a little later."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

log = logging.getLogger("retinue.cluster")

INBOX, SLOT = "inbox", "slot"
ANSWERED, ENDED = "answered", "ended"
DUE, STOP = "due", "stop"
POOL, PAUSE = "pool", "pause"
CHANNEL = "retinue_"
MOST_BYTES = 7_000
"""A notice of PostgreSQL has fewer than 8,000."""
RECONNECT_SECONDS = 0.3


async def send_notice(connection: AsyncConnection[Any], kind: str, *names: str) -> None:
    """Sent when the transaction of this connection is committed."""
    text = ""
    for name in names:
        if len(text) + len(name) > MOST_BYTES:
            await _notify(connection, kind, text)
            text = ""
        text += f" {name}"
    if text:
        await _notify(connection, kind, text)


async def _notify(connection: AsyncConnection[Any], kind: str, text: str) -> None:
    await connection.execute(
        "select pg_notify(%s || current_schema(), %s)", (CHANNEL, f"{kind}{text}")
    )


class Listener:
    """Calls back for each notice, and once after each new connection, when some may have been
    missed."""

    def __init__(self, url: str, on_notice: Callable[[str, list[str]], None]) -> None:
        self._url, self._on_notice = url, on_notice
        self._task: asyncio.Task[None] | None = None
        self.is_connected = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen(), name="retinue notices")

    async def _listen(self) -> None:
        while True:
            try:
                connection = await AsyncConnection.connect(self._url, autocommit=True)
                async with connection:
                    names_of_schema = await connection.execute("select current_schema()")
                    (schema,) = await names_of_schema.fetchone() or ("",)
                    channel = sql.Identifier(f"{CHANNEL}{schema}")
                    await connection.execute(sql.SQL("listen {}").format(channel))
                    self.is_connected.set()
                    self._on_notice("", [])
                    async for notice in connection.notifies():
                        kind, *names = notice.payload.split()
                        self._on_notice(kind, names)
            except (psycopg.Error, OSError) as error:
                self.is_connected.clear()
                log.debug("no notices for a moment: %s", error)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
