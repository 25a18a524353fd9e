"""A dispatcher that needs only PostgreSQL: it notifies workers, and polls for trees that are due.
It is enough for a few workers, and the double of the port in tests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random

import psycopg

from retinue.cluster.base import Connection, Drive, Due
from retinue.cluster.node_notices import DUE, STOP, Listener, send_notice

log = logging.getLogger("retinue.cluster")

AT_A_TIME = 4
"""So many trees are taken before others have their turn."""
PAUSE_SECONDS = 0.02


class InDatabase:
    """`look_seconds`: how long a tree that became due without a notice waits at most."""

    def __init__(self, url: str, look_seconds: float = 0.5) -> None:
        self._url, self._look = url, look_seconds
        self._kick = asyncio.Event()
        self._driven: dict[str, asyncio.Task[None]] = {}
        self._listener = Listener(url, self._took)

    async def open(self) -> None:
        pass

    async def wake(self, connection: Connection, tree: str) -> None:
        await send_notice(connection, DUE, tree)

    async def woken(self, tree: str) -> None:
        pass

    async def abort(self, tree: str) -> None:
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
            await send_notice(connection, STOP, tree)

    def _took(self, kind: str, names: list[str]) -> None:
        if kind in (DUE, ""):
            self._kick.set()
        elif kind == STOP:
            for name in names:
                if name in self._driven:
                    self._driven[name].cancel()

    async def work(self, drive: Drive, due: Due, at_once: int) -> None:
        self._listener.start()
        try:
            while True:
                n = min(AT_A_TIME, at_once - len(self._driven))
                trees = await self._found(due, n) if n > 0 else []
                for tree in trees:
                    self._begin(drive, tree)
                if trees:
                    # Others have their turn, those with less to do first.
                    share = len(self._driven) / at_once
                    await asyncio.sleep(PAUSE_SECONDS * (1 + 4 * share) * random.random())
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._look * (0.5 + random.random())):
                        await self._kick.wait()
                self._kick.clear()
        finally:
            await self._listener.stop()
            tasks = list(self._driven.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _found(self, due: Due, n: int) -> list[str]:
        try:
            trees = await due(n + len(self._driven))
        except (psycopg.Error, OSError) as error:
            log.info("cannot look for due trees: %s", error)
            return []
        return [tree for tree in trees if tree not in self._driven][:n]

    def _begin(self, drive: Drive, tree: str) -> None:
        task = asyncio.create_task(self._drive(drive, tree), name=f"retinue tree {tree}")
        self._driven[tree] = task

    async def _drive(self, drive: Drive, tree: str) -> None:
        try:
            await drive(tree)
        except (psycopg.Error, OSError) as error:
            log.info("the tree %s is driven again later: %s", tree, error)
            await asyncio.sleep(self._look)
        finally:
            del self._driven[tree]
            self._kick.set()

    async def close(self) -> None:
        await self._listener.stop()
