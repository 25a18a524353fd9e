"""What every store must do with the to-do lists of trees: keep each act once, in order, as long as
the tree."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from retinue.core.events import CancelAsked, Forgotten
from retinue.core.task_list import Act, Added, Removed, TaskList, Updated
from retinue.errors import StoreError
from tests.contracts.world import Opening, World, run_async

ACTS: tuple[Act, ...] = (
    Added(titles=("read", "write \u202e ünï 🔑"), owner="lead"),
    Updated(id=1, status="done", note=""),
    Removed(ids=(2,)),
)


class TaskLists(Opening):
    @run_async
    async def test_acts_on_a_board_are_kept_in_order_and_survive(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root, other = world.start(), world.start()
        await store.commit(world.take())
        assert await store.task_list(root) == []
        for n, act in enumerate(ACTS):
            await store.note(root, f"k{n}", 5, act)
            await store.note(other, f"k{n}", 5, Added(titles=(f"other {n}",)))
        heir = store.survivor()
        await heir.open()
        task = await heir.task_list(root)
        assert [(one.key, one.act) for one in task] == [
            (f"k{n}", act) for n, act in enumerate(ACTS)
        ]
        assert sorted({one.n for one in task}) == [one.n for one in task]
        assert await heir.task_list(root, task[0].n) == task[1:]
        assert await heir.task_list(root, task[-1].n) == []
        assert len(await heir.task_list(other)) == 3
        assert await heir.verify() == []
        await heir.close()

    @run_async
    async def test_a_key_counts_once_on_its_board(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root, other = world.start(), world.start()
        await store.commit(world.take())
        for title in ("first", "second"):
            await store.note(root, "same", 1, Added(titles=(title,)))
        await store.note(other, "same", 1, Added(titles=("third",)))
        assert [one.act for one in await store.task_list(root)] == [Added(titles=("first",))]
        assert [one.act for one in await store.task_list(other)] == [Added(titles=("third",))]
        await store.close()

    @run_async
    async def test_runs_that_write_on_a_board_at_the_same_time_are_all_heard(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start()
        await store.commit(world.take())
        acts = [
            store.note(root, f"k{n % 50}", n, Added(titles=(f"t{n % 50}",))) for n in range(100)
        ]
        await asyncio.gather(*acts)
        board = TaskList()
        board.fold(await store.task_list(root))
        assert sorted(task.title for task in board.tasks.values()) == sorted(
            f"t{n}" for n in range(50)
        )
        assert list(board.tasks) == list(range(1, 51))
        await store.close()

    @run_async
    async def test_a_board_is_forgotten_with_its_root_and_does_not_come_back(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        root, other = world.start(), world.start()
        await store.commit(world.take())
        for id in (root, other):
            await store.note(id, "k", 1, ACTS[0])
        for _ in range(2):
            world.apply(root, CancelAsked())
        world.apply("", Forgotten(root=root))
        await store.commit(world.take())
        assert await store.task_list(root) == []
        await store.note(root, "late", 2, ACTS[0])
        assert await store.task_list(root) == []
        assert len(await store.task_list(other)) == 1
        await store.note(other, "later", 3, ACTS[1])
        assert [one.key for one in await store.task_list(other)] == ["k", "later"]
        assert await store.verify() == []
        await store.close()

    @run_async
    async def test_a_board_is_not_written_through_a_handle_that_was_replaced_or_closed(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start()
        await store.commit(world.take())
        heir = store.survivor()
        await heir.open()
        with pytest.raises(StoreError):
            await store.note(root, "k", 1, ACTS[0])
        assert await heir.task_list(root) == []
        await heir.close()
        with pytest.raises(StoreError):
            await heir.note(root, "k", 1, ACTS[0])

    @run_async
    async def test_half_a_surrogate_on_a_board_is_mended_not_refused(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start()
        await store.commit(world.take())
        await store.note(root, "k", 1, Added(titles=("half \ud83d of it", "whole")))
        (one,) = await store.task_list(root)
        assert isinstance(one.act, Added)
        assert one.act.titles[1] == "whole"
        await store.close()
