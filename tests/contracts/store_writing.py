"""What every store must do when it is written to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from retinue.core.state import Ended
from retinue.core.trees import Trees
from retinue.core.values import Limits
from retinue.errors import StoreError
from tests.contracts.world import Opening, World, all_of, run_async, texts


class Writing(Opening):
    # what is written stays

    @run_async
    async def test_a_commit_that_returned_survives_a_crash(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root, (first, *_) = world.family()
        world.say(first, "a is done")
        await store.commit(world.take())
        before = await all_of(store)
        heir = store.survivor()
        await heir.open()
        assert await all_of(heir) == before
        assert (await heir.row(root)).run == world.trees.run(root)
        await heir.close()

    @run_async
    async def test_a_commit_returns_the_number_of_its_last_event(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        changes = world.take()
        assert await store.commit(changes) == len(changes.entries) == 2
        world.start()
        changes = world.take()
        assert await store.commit(changes) == 2 + len(changes.entries)
        assert await store.commit(world.take()) == 2 + len(changes.entries)
        assert [seq for seq, _ in await store.entries()] == list(range(1, 3 + len(changes.entries)))
        await store.close()

    @run_async
    async def test_commits_sent_together_are_numbered_in_the_order_of_sending(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        batches = [world.take()]
        for n in range(20):
            world.start(f"task {n}")
            batches.append(world.take())
        numbers = await asyncio.gather(*(store.commit(batch) for batch in batches))
        sizes = [len(batch.entries) for batch in batches]
        assert numbers == [sum(sizes[: n + 1]) for n in range(len(sizes))]
        assert [e for _, e in await store.entries()] == [
            e for batch in batches for e in batch.entries
        ]
        await store.close()

    @run_async
    async def test_of_commits_sent_together_the_last_state_counts(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        batches = []
        root = world.start()
        batches.append(world.take())
        world.call(root, "read")
        batches.append(world.take())
        world.result(root)
        batches.append(world.take())
        world.say(root)
        batches.append(world.take())
        await asyncio.gather(*(store.commit(batch) for batch in batches))
        assert isinstance((await store.row(root)).run.state, Ended)
        assert (await store.load()).open == []
        assert texts(await store.messages(root)) == ["Do it.", "Working.", "ok", "Done."]
        await store.close()

    @run_async
    async def test_the_log_folds_into_the_runs_that_are_stored(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root, children = world.family()
        world.call(children[0], "read")
        world.say(children[1], "b is done")
        await store.commit(world.take())
        again = Trees(Limits())
        for _, entry in await store.entries():
            again.fold(entry)
        for row in (await store.load()).open:
            assert row.run == again.run(row.spec.id)
            assert row.spec == again.spec(row.spec.id)
        assert again.run(root) is not None
        await store.close()

    @run_async
    async def test_what_is_stepped_after_a_commit_was_begun_does_not_reach_the_store(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start()
        changes = world.take()
        before = changes.accounts[root].held
        commit = asyncio.ensure_future(store.commit(changes))
        world.call(root, "read")
        world.result(root)
        assert world.trees.by_root[root].ledger.accounts[root].held != before
        await commit
        account = await store.account(root)
        assert account.held == before and account.spent == (0, 0, 0, 0)
        account.spent = (5, 0, 0, 0)
        assert (await store.account(root)).spent == (0, 0, 0, 0)
        await store.close()

    @run_async
    async def test_odd_text_is_kept(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        odd = "nul \0, right to left \u202e, astral \U0001f9ea, control \x1b[2J, line \u2028"
        root = world.start(odd, label=odd)
        await store.commit(world.take())
        assert texts(await store.messages(root)) == [odd]
        assert (await store.listing())[0].label == odd
        await store.close()

    @run_async
    async def test_half_a_character_does_not_stop_a_commit(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start("broken \ud800 pair", label="l\udfff")
        await store.commit(world.take())
        (text,) = texts(await store.messages(root))
        assert text.startswith("broken ") and text.endswith(" pair")
        assert (await store.row(root)).spec.id == root
        await store.close()

    # who may write

    @run_async
    async def test_each_opening_has_a_higher_epoch(self, tmp_path: Path) -> None:
        store = self.make(tmp_path)
        first = await store.open()
        heir = store.survivor()
        assert await heir.open() > first
        await heir.close()

    @run_async
    async def test_a_commit_of_an_older_epoch_is_refused_and_changes_nothing(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        await store.commit(world.take())
        heir = store.survivor()
        await heir.open()
        before = await all_of(heir)
        world.start()
        changes = world.take()
        with pytest.raises(StoreError):
            await store.commit(changes)
        assert await all_of(heir) == before
        await heir.commit(changes)
        await heir.close()

    @run_async
    async def test_a_store_that_is_closed_takes_nothing(self, tmp_path: Path) -> None:
        store, world = self.make(tmp_path), World()
        with pytest.raises(StoreError, match="not open"):
            await store.commit(world.take())
        await store.open()
        await store.close()
        await store.close()
        with pytest.raises(StoreError):
            await store.commit(world.take())

    @run_async
    async def test_a_run_with_a_known_id_is_refused_and_nothing_changes(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start(id="same")
        world.say(root)
        await store.commit(world.take())
        before = await all_of(store)
        world.start("again", id="same")
        with pytest.raises(StoreError, match=r"not saved"):
            await store.commit(world.take())
        assert await all_of(store) == before
        await store.close()
