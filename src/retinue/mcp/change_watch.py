"""Watches for changes in task states and conversations by polling every second, so that restarts of
the host are not noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from retinue.mcp.protocol_versions import ClientFacts
from retinue.mcp.task_methods import ENDS, POLL_MS, TaskSource, TaskState

Version = Callable[[str], Awaitable[Any]]
"""What a resource looks like now: equal to what it was, or not. None for one that is not there."""


async def task_changes(
    source: TaskSource, id: str, client: ClientFacts
) -> AsyncIterator[TaskState]:
    """Its state now, and each one after, up to its end."""
    before: Any = None
    while (state := await source.find(id, client)) is not None:
        facts = (state.status, state.message, sorted(state.requests))
        if facts != before:
            before = facts
            yield state
        if state.status in ENDS:
            return
        await asyncio.sleep(POLL_MS / 1000)


async def resource_changes(version: Version, uri: str, before: Any) -> AsyncIterator[None]:
    """One for each time that it was found changed since it was as `before`, until it is gone."""
    while before is not None:
        await asyncio.sleep(POLL_MS / 1000)
        after = await version(uri)
        if after != before:
            before = after
            yield
