"""What every store must do with the logs of trees: numbers of their own, beside one position over
all."""

from __future__ import annotations

import asyncio
from pathlib import Path

from retinue.core.changes import Changes
from retinue.core.events import CancelAsked, Forgotten
from retinue.core.spec import ForkPoint
from tests.contracts.world import Opening, World, run_async, texts


class Trees(Opening):
    @run_async
    async def test_each_tree_has_its_own_numbers(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        one, (child, *_) = world.family()
        two = world.start()
        world.say(child)
        world.say(two)
        await store.commit(world.take())
        world.say(world.start())
        await store.commit(world.take())
        everything = await store.entries()
        assert [seq for seq, _ in everything] == list(range(1, len(everything) + 1))
        for tree in ("", one, two):
            mine = [entry for _, entry in everything if entry.tree == tree]
            assert len(mine) > 1
            assert await store.entries(tree=tree) == list(enumerate(mine, 1))
            assert await store.entries(1, tree=tree, limit=1) == [(2, mine[1])]
            assert await store.entries(len(mine), tree=tree) == []
        assert {entry.run for _, entry in await store.entries(tree=one, run=child)} == {child}
        assert await store.entries(tree="nobody") == []
        assert await store.verify() == []
        await store.close()

    @run_async
    async def test_the_numbers_of_a_tree_go_on_after_a_crash(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        roots = [world.start() for _ in range(3)]
        await store.commit(world.take())
        heir = store.survivor()
        await heir.open()
        for root in roots:
            world.call(root, "read")
            world.say(world.start())
        await asyncio.gather(*(heir.commit(changes) for changes in (world.take(), world.take())))
        for root in roots:
            entries = await heir.entries(tree=root)
            assert [n for n, _ in entries] == list(range(1, len(entries) + 1))
        assert await heir.verify() == []
        await heir.close()

    @run_async
    async def test_a_forgotten_tree_has_no_rows_and_its_positions_are_not_used_again(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        rest, run = world.start(), world.start()
        world.say(run)
        last = await store.commit(world.take())
        await store.commit(Changes(forgotten=[run]))
        assert await store.entries(tree=run) == await store.entries(run=run) == []
        assert await store.known([rest, run, "nobody"]) == {rest}
        heir = store.survivor()
        await heir.open()
        assert (await heir.load()).last_seq == last
        world.say(rest)
        changes = world.take()
        assert await heir.commit(changes) == last + len(changes.entries)
        assert await heir.verify() == []
        await heir.close()

    @run_async
    async def test_a_tree_can_begin_again_where_one_was_forgotten(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start("first", id="same")
        world.say(root)
        batches = [world.take()]
        world.apply("", Forgotten(root=root))
        batches.append(world.take())
        world.start("second", id="same")
        batches.append(world.take())
        world.say("same")
        batches.append(world.take())
        await asyncio.gather(*(store.commit(batch) for batch in batches))
        assert texts(await store.messages("same")) == ["second", "Done."]
        numbers = [n for n, _ in await store.entries(tree="same")]
        assert len(numbers) >= 2 and numbers[0] > 2, "numbers are not used twice"
        assert await store.verify() == []
        await store.close()

    @run_async
    async def test_a_conversation_that_went_on_is_forgotten_with_all_its_trees(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        first = world.start("first")
        world.say(first)
        second = world.start(
            "second",
            conversation=first,
            resumes=first,
            base=ForkPoint(conversation=first, length=2),
        )
        world.say(second)
        other = world.start()
        await store.commit(world.take())
        world.apply("", Forgotten(root=first))
        await store.commit(world.take())
        assert await store.entries(tree=first) == await store.entries(tree=second) == []
        assert await store.entries(tree=other)
        assert {entry.tree for _, entry in await store.entries()} == {"", other}
        assert await store.verify() == []
        await store.close()

    @run_async
    async def test_a_child_that_was_not_to_be_kept_leaves_holes_in_its_tree(
        self, tmp_path: Path
    ) -> None:
        store, world = await self.opened(tmp_path), World()
        root, children = world.family("a", "b", retention="delete")
        for child in children:
            world.say(child)
        await store.commit(world.take())
        assert await store.known([root, *children]) == {root}
        numbers = [n for n, _ in await store.entries(tree=root)]
        assert numbers and numbers != list(range(1, len(numbers) + 1))
        assert not any(entry.run in children for _, entry in await store.entries())
        world.apply(root, CancelAsked())
        await store.commit(world.take())
        after = [n for n, _ in await store.entries(tree=root)]
        assert after[: len(numbers)] == numbers and after[-1] > numbers[-1]
        assert await store.verify() == []
        await store.close()
