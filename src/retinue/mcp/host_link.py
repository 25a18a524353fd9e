"""Connects an MCP server to a host: sends a request, returns the reply. The thin process reaches it
over the host's Unix socket and starts it when the first work comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from retinue.errors import HostGone
from retinue.host.daemon_threads import in_daemon_thread

if TYPE_CHECKING:
    from retinue.host.project_paths import ProjectPaths
    from retinue.host.requests import HostRequest

ATTEMPTS = 3


class HostLink(Protocol):
    """Carries out requests of one guest, who sees and starts only runs of its own."""

    async def ask(self, request: HostRequest, key: str = "") -> Any:
        """The reply as JSON has it, or bytes. With a `key`, the same start begins one run only.
        Raises what the host raised."""

    async def guest_key(self) -> bytes:
        """What the secrets of this guest's tasks are made with. It never changes."""


Prepare = Callable[[], "tuple[ProjectPaths, dict[str, str]]"]
"""The places of the project and the environment for its host; makes the folders. It blocks."""


class SocketHost:
    """A host in a process of its own. `guest` is whose runs are seen. A host that was killed is
    started again, and what is safe to ask again is asked again."""

    def __init__(self, prepare: Prepare, guest: str) -> None:
        self._prepare, self.guest = prepare, guest
        self._paths: ProjectPaths | None = None
        self._lock = asyncio.Lock()

    async def ask(self, request: HostRequest, key: str = "") -> Any:
        for attempt in range(ATTEMPTS):
            if attempt or self._paths is None:
                await self._reach(attempt)
            try:
                return await self._exchange(request, key)
            except (FileNotFoundError, ConnectionRefusedError):
                continue  # it was not sent
            except (ConnectionError, asyncio.IncompleteReadError, ValueError):
                if not _is_repeatable(request, key):
                    raise HostGone(
                        "The host ended before it replied. It is not known whether this was done: "
                        "look at the agents before you repeat it."
                    ) from None
        raise HostGone("The host cannot be reached. Run `retinue doctor` in this directory.")

    async def guest_key(self) -> bytes:
        from retinue.host.guest_keys import guest_key

        if self._paths is None:
            await self._reach(0)
        assert self._paths is not None
        return await asyncio.to_thread(guest_key, self._paths.store, self.guest)

    async def _reach(self, attempt: int) -> None:
        """Find the host or start one; those who come at the same time wait for the first."""
        async with self._lock:
            if self._paths is None or attempt:
                self._paths = await in_daemon_thread(self._start)

    def _start(self) -> ProjectPaths:
        from retinue.host.launch import start_prepared

        return start_prepared(self._prepare)

    async def _exchange(self, request: HostRequest, key: str) -> Any:
        from retinue.host.async_client import news_about

        assert self._paths is not None
        headers = {"retinue-user": self.guest, **({"idempotency-key": key} if key else {})}
        async with contextlib.aclosing(news_about(self._paths, request, headers)) as all_news:
            async for news in all_news:
                if news.is_last:
                    return news.done
        raise ConnectionResetError


def _is_repeatable(request: HostRequest, key: str) -> bool:
    """Whether to ask twice does no more than to ask once."""
    from retinue.host import requests
    from retinue.host.operations import BY_REQUEST

    is_safe = BY_REQUEST[type(request)].method == "GET"
    return (
        bool(key) or is_safe or isinstance(request, requests.WaitRequest | requests.CancelRequest)
    )
