"""What every dispatcher promises: a wake that is committed has the tree driven."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from retinue.cluster.base import Dispatcher
from tests import postgres
from tests.waiting import SECONDS


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.01)


class Trees:
    """Which trees are wanted, and what was driven."""

    def __init__(self) -> None:
        self.due: set[str] = set()
        self.driven: list[str] = []
        self.under_way = self.most_under_way = 0
        self.cancelled: list[str] = []
        self.hold: asyncio.Event | None = None

    async def drive(self, tree: str) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.hold is not None:
                await self.hold.wait()
            self.due.discard(tree)
            self.driven.append(tree)
        except asyncio.CancelledError:
            self.cancelled.append(tree)
            raise
        finally:
            self.under_way -= 1

    async def find(self, most: int) -> list[str]:
        return sorted(self.due)[:most]

    async def have_driven(self, n: int) -> None:
        await until(lambda: len(self.driven) >= n)


class DispatcherContract:
    def dispatcher(self, url: str) -> Dispatcher:
        raise NotImplementedError

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        asyncio.run(test)

    @asynccontextmanager
    async def at_work(self, url: str, trees: Trees, at_once: int = 8) -> AsyncIterator[Dispatcher]:
        dispatcher = self.dispatcher(url)
        await dispatcher.open()
        work = asyncio.create_task(dispatcher.work(trees.drive, trees.find, at_once))
        try:
            yield dispatcher
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await dispatcher.close()

    async def wake(self, dispatcher: Dispatcher, url: str, trees: Trees, *names: str) -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            for name in names:
                trees.due.add(name)
                await dispatcher.wake(connection, name)
        for name in names:
            await dispatcher.woken(name)

    def test_a_tree_that_is_woken_is_driven(self) -> None:
        async def test() -> None:
            url, trees = postgres.fresh(), Trees()
            async with self.at_work(url, trees) as dispatcher:
                await self.wake(dispatcher, url, trees, "a", "b")
                await trees.have_driven(2)
                assert set(trees.driven) == {"a", "b"}

        self.run(test())

    def test_each_wake_after_a_drive_has_the_tree_driven_again(self) -> None:
        async def test() -> None:
            url, trees = postgres.fresh(), Trees()
            async with self.at_work(url, trees) as dispatcher:
                for n in range(1, 6):
                    await self.wake(dispatcher, url, trees, "a")
                    await trees.have_driven(n)
            assert set(trees.driven) == {"a"}

        self.run(test())

    def test_a_wake_during_a_drive_is_not_lost(self) -> None:
        async def test() -> None:
            url, trees = postgres.fresh(), Trees()
            trees.hold = asyncio.Event()
            async with self.at_work(url, trees) as dispatcher:
                await self.wake(dispatcher, url, trees, "a")
                await until(lambda: trees.under_way > 0)
                hold, trees.hold = trees.hold, None
                hold.set()
                await trees.have_driven(1)
                await self.wake(dispatcher, url, trees, "a")
                await trees.have_driven(2)
            assert set(trees.driven) == {"a"}

        self.run(test())

    def test_a_wake_that_is_rolled_back_drives_nothing(self) -> None:
        async def test() -> None:
            url, trees = postgres.fresh(), Trees()
            async with self.at_work(url, trees) as dispatcher:
                async with await psycopg.AsyncConnection.connect(url) as connection:
                    await dispatcher.wake(connection, "a")
                    await connection.rollback()
                await self.wake(dispatcher, url, trees, "b")
                await trees.have_driven(1)
                assert trees.driven == ["b"]

        self.run(test())

    def test_no_more_trees_are_driven_at_a_time_than_asked_for(self) -> None:
        async def test() -> None:
            url, trees = postgres.fresh(), Trees()
            trees.hold = asyncio.Event()
            async with self.at_work(url, trees, at_once=3) as dispatcher:
                await self.wake(dispatcher, url, trees, *"abcdefgh")
                await until(lambda: trees.under_way == 3)
                await asyncio.sleep(0.3)
                hold, trees.hold = trees.hold, None
                hold.set()
                await trees.have_driven(8)
            assert trees.most_under_way == 3
            assert sorted(set(trees.driven)) == list("abcdefgh")

        self.run(test())

    def test_a_tree_that_became_due_without_a_wake_is_found(self) -> None:
        async def test() -> None:
            url, trees = postgres.fresh(), Trees()
            async with self.at_work(url, trees):
                trees.due.add("forgotten")
                await trees.have_driven(1)
            assert "forgotten" in trees.driven

        self.run(test())

    def test_what_was_woken_while_no_worker_was_there_is_driven_later(self) -> None:
        async def test() -> None:
            url, trees = postgres.fresh(), Trees()
            alone = self.dispatcher(url)
            await alone.open()
            await self.wake(alone, url, trees, "a")
            await alone.close()
            async with self.at_work(url, trees):
                await trees.have_driven(1)
            assert "a" in trees.driven

        self.run(test())

    def test_a_drive_can_be_aborted_by_another_process(self) -> None:
        async def test() -> None:
            url, trees = postgres.fresh(), Trees()
            trees.hold = asyncio.Event()
            async with self.at_work(url, trees) as dispatcher:
                await self.wake(dispatcher, url, trees, "a")
                await until(lambda: trees.under_way > 0)
                trees.due.clear()
                other = self.dispatcher(url)
                await other.open()
                await other.abort("a")
                await until(lambda: bool(trees.cancelled))
                await other.close()
            assert trees.cancelled == ["a"]

        self.run(test())

    def test_what_is_under_way_is_cancelled_with_the_worker(self) -> None:
        async def test() -> None:
            url, trees = postgres.fresh(), Trees()
            trees.hold = asyncio.Event()
            async with self.at_work(url, trees) as dispatcher:
                await self.wake(dispatcher, url, trees, "a")
                await until(lambda: trees.under_way > 0)
            assert trees.cancelled == ["a"]

        self.run(test())
