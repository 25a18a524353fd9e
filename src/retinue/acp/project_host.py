"""Connects an editor session to the host of its project. A host that has ended is started again,
and who follows a run continues where it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from retinue.errors import HostGone
from retinue.host import requests
from retinue.host.async_client import news_about
from retinue.host.daemon_threads import in_daemon_thread
from retinue.host.operations import BY_REQUEST
from retinue.host.project_paths import ProjectPaths
from retinue.host.tree_items import Stepped, TreeItem
from retinue.tree_record import TreeRecord

ATTEMPTS = 3
Prepare = Callable[[], tuple[ProjectPaths, dict[str, str]]]
"""The places of the project and the environment for its host; makes the folders. It blocks."""


class ProjectHost:
    """The host of one project."""

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare
        self._paths: ProjectPaths | None = None
        self._lock = asyncio.Lock()

    async def ask(self, request: requests.HostRequest) -> Any:
        """The reply as JSON has it. Raises what the host raised."""
        for attempt in range(ATTEMPTS):
            paths = await self.reach(again=attempt > 0)
            try:
                async with contextlib.aclosing(news_about(paths, request)) as all_news:
                    async for news in all_news:
                        if news.is_last:
                            return news.done
            except (FileNotFoundError, ConnectionRefusedError):
                continue  # it was not sent
            except (ConnectionError, ValueError):
                if BY_REQUEST[type(request)].method != "GET":
                    raise HostGone(
                        "The host ended before it replied. It is not known whether this was done. "
                        "Recorded work is safe: send your message again, or run `retinue ps`."
                    ) from None
        raise HostGone("The host cannot be reached. Run `retinue doctor` in this directory.")

    async def watch(self, run: str) -> AsyncGenerator[TreeItem | TreeRecord, None]:
        """Everything about a run and its sub-agents, until it ends; its record is last. After a
        host has ended, some of it may come again."""
        after, failures = 0, 0
        while failures < ATTEMPTS:
            paths = await self.reach(again=failures > 0)
            request = requests.WatchRequest(run=run, after=after, deltas=True)
            try:
                async with contextlib.aclosing(news_about(paths, request)) as all_news:
                    async for news in all_news:
                        failures = 0
                        if news.is_last:
                            yield msgspec.convert(news.done, TreeRecord)
                            return
                        if isinstance(news.item, Stepped):
                            after = news.item.seq
                        if news.item is not None:
                            yield news.item
            except (OSError, ValueError):
                failures += 1
        raise HostGone("The host cannot be reached. Run `retinue doctor` in this directory.")

    async def reach(self, *, again: bool = False) -> ProjectPaths:
        """The places of the host, which was found or started; those who come at the same time wait
        for the first."""
        async with self._lock:
            if self._paths is None or again:
                self._paths = await in_daemon_thread(self._start)
            return self._paths

    def _start(self) -> ProjectPaths:
        from retinue.host.launch import start_prepared

        return start_prepared(self._prepare)
