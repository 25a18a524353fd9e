"""Compacts a store that no host has open."""

from __future__ import annotations

from retinue.host.project_paths import ProjectPaths
from retinue.host.stored_runs import store_of
from retinue.store.base import Compacted, Progress

__all__ = ["Compacted", "compact_store"]


async def compact_store(paths: ProjectPaths, progress: Progress | None) -> Compacted:
    """The store is opened here, and no one else can until this has ended."""
    store = store_of(paths.store, paths.database)
    await store.open()
    try:
        return await store.compact(rebuild=True, progress=progress)
    finally:
        await store.close()
