"""Compacting a store that no host holds."""

from __future__ import annotations

from retinue.store.base import Compacted, Progress

__all__ = ["Compacted", "compact_file"]


async def compact_file(path: str, progress: Progress | None) -> Compacted:
    """The store is opened here, and no one else can until this has ended."""
    from retinue.store.sqlite.sqlite_store import SqliteStore

    store = SqliteStore(path)
    await store.open()
    try:
        return await store.compact(rebuild=True, progress=progress)
    finally:
        await store.close()
