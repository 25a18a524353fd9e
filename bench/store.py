"""Figures of the store alone: a big one that is listed, migrated, forgotten and compacted."""

from __future__ import annotations

import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from retinue.core.changes import Changes
from retinue.host.listing import RunListing
from retinue.host.project_paths import ProjectPaths
from retinue.store.row_batch import RowBatch, encode
from retinue.store.sqlite.database_file import connect
from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.contracts.world import World
from tests.store.old_databases import Old

Figures = dict[str, Any]
CHILDREN = 9


def stock(n_trees: int, text: str = "x" * 500) -> Iterator[tuple[str, Changes]]:
    """Trees of ten runs each that have ended: one after the other, by the real core."""
    world = World()
    yield "", world.take()
    for _ in range(n_trees):
        root, children = world.family(*[text] * CHILDREN)
        for child in children:
            world.say(child, text)
        world.say(root, text)
        yield root, world.take()


def batches(n_trees: int, text: str = "x" * 500) -> Iterator[tuple[str, RowBatch]]:
    for root, changes in stock(n_trees, text):
        yield root, encode(changes)


def fill(path: str, n_trees: int, text: str = "x" * 500) -> list[str]:
    """A store of ended trees; their roots."""

    async def main() -> list[str]:
        store = SqliteStore(path, inline=True, synchronous="OFF")
        await store.open()
        assert store._writer is not None
        roots, some = [], []
        for root, batch in batches(n_trees, text):
            roots.append(root)
            some.append(batch)
            if len(some) == 100:
                store._writer.write(some)
                some = []
                store._writer.tidy()
        if some:
            store._writer.write(some)
        await store.close()
        return roots[1:]

    return asyncio.run(main())


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _size(path: str) -> int:
    return os.path.getsize(path)


def tree_listing() -> Figures:
    """Everything below a root, with 100,000 runs on record: what `ps --tree` asks for each root."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log.db")
        roots = fill(path, 10_000)
        with RunListing(
            ProjectPaths(root=folder, cwd=folder, store=path, socket="", log="")
        ) as shelf:
            assert len(shelf.below(roots[0])) == CHILDREN
            some = roots[:: len(roots) // 200]
            db = connect(path, read_only=True)
            sql = "select n from runs r where r.root = ? and r.parent <> '' order by r.n"
            seconds = _seconds(lambda: [db.execute(sql, (r,)).fetchall() for r in some])
            lines = _seconds(lambda: [shelf.below(root) for root in some])
    ms, query_ms = lines * 1000 / len(some), seconds * 1000 / len(some)
    return {"ms_a_root": round(ms, 3), "ms_the_query": round(query_ms, 4), "ok": query_ms < 0.5}


def migration() -> Figures:
    """A file of schema 2 with 100,000 runs is opened: seconds, and how much memory that takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        old = Old(path, 2)
        for _, changes in stock(10_000):
            old.write(changes)
        n_events = old.seq
        old.close()
        size = path.stat().st_size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        store = SqliteStore(path, inline=True)
        seconds = _seconds(lambda: asyncio.run(store.open()))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        checked = 0.0
        results: list[str] = []
        checked = _seconds(lambda: results.extend(asyncio.run(store.verify())))
        asyncio.run(store.close())
    return {
        "events": n_events,
        "mb": round(size / 1e6),
        "seconds": round(seconds, 1),
        "more_memory_mb": round(peak / 1e3),
        "verify_seconds": round(checked, 1),
        "ok": not results and seconds < 60 and peak < 300_000,
    }


def forgetting() -> Figures:
    """98.5 % of a soak is forgotten, one tree after the other, and the file compacted. A writer
    beside it."""

    async def main(path: str, roots: list[str]) -> Figures:
        store = SqliteStore(path, synchronous="OFF")
        await store.open()
        full = (await store.space()).file
        began = time.perf_counter()
        for root in roots[: int(len(roots) * 0.985)]:
            await store.commit(Changes(forgotten=[root]))
        forgot = time.perf_counter() - began
        holes = (await store.space()).holes
        longest = 0.0
        compaction = asyncio.ensure_future(store.compact())
        world = World()
        while not compaction.done():
            world.start()
            began = time.perf_counter()
            await store.commit(world.take())
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(0.01)
        result = await compaction
        problems = await store.verify()
        await store.close()
        size = _size(path)
        return {
            "mb_full": round(full / 1e6),
            "mb_holes": round(holes / 1e6),
            "mb_after": round(size / 1e6, 1),
            "ms_to_forget_a_tree": round(forgot * 1000 / len(roots) / 0.985, 2),
            "compact_seconds": result.seconds,
            "longest_commit_ms": round(longest * 1000, 1),
            "ok": not problems and size < 0.1 * full,
        }

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log.db")
        return asyncio.run(main(path, fill(path, 2_000, "x" * 2_000)))


STORE_CASES = (tree_listing, migration, forgetting)
