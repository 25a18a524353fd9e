"""What every store must do to stay small: say what can be forgotten, and give back what is free."""

from __future__ import annotations

import asyncio
from pathlib import Path

from retinue.core.changes import Changes
from retinue.core.events import Acked, Dropped, Sent
from retinue.core.spec import ForkPoint
from retinue.core.values import Origin
from tests.contracts.world import Opening, World, all_of, run_async


class Spaces(Opening):
    @run_async
    async def test_what_has_ended_can_be_forgotten_oldest_end_first(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        one, two, three = (world.start() for _ in range(3))
        world.start()
        ends = []
        for root in (two, one, three):
            world.say(root)
            ends.append(world.at)
        await store.commit(world.take())
        assert await store.expendable() == []
        assert await store.expendable(beyond=0) == [two, one, three]
        assert await store.expendable(beyond=0, limit=2) == [two, one]
        assert await store.expendable(beyond=1) == [two, one]
        assert await store.expendable(beyond=7) == []
        assert await store.expendable(before=ends[1]) == [two]
        assert await store.expendable(before=ends[0], beyond=2) == [two]
        await store.close()

    @run_async
    async def test_what_is_open_anywhere_in_a_conversation_keeps_it(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        root = world.start(children_on_end="keep")
        world.call(root, "spawn")
        (child,) = world.spawn(root, "a", join="none", children_on_end="keep")
        world.say(root)
        first = world.start("first")
        world.say(first)
        second = world.start(
            "second",
            conversation=first,
            resumes=first,
            base=ForkPoint(conversation=first, length=2),
        )
        await store.commit(world.take())
        assert await store.expendable(beyond=0) == []
        world.say(child)
        world.say(second)
        await store.commit(world.take())
        assert sorted(await store.expendable(beyond=0)) == sorted([root, first])
        await store.commit(Changes(forgotten=[first]))
        assert await store.known([first, second]) == set()
        await store.close()

    @run_async
    async def test_what_has_not_been_announced_is_kept(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        for _ in range(2):
            world.say(world.start(announce=True, origin=Origin(channel="chat")))
        changes = world.take()
        await store.commit(changes)
        assert await store.expendable(beyond=0) == []
        one, two = changes.deliveries
        world.apply("", Sent(key=one))
        await store.commit(world.take())
        assert await store.expendable(beyond=0) == []
        world.apply("", Acked(key=one))
        world.apply("", Dropped(key=two))
        await store.commit(world.take())
        assert len(await store.expendable(beyond=0)) == 2
        await store.close()

    @run_async
    async def test_compacting_changes_nothing_that_can_be_asked(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        roots = []
        for n in range(30):
            roots.append(world.start("x" * 5_000 + str(n)))
            world.say(roots[-1])
        await store.commit(world.take())
        await store.commit(Changes(forgotten=roots[:25]))
        before = await all_of(store)
        records: list[tuple[int, int]] = []
        report = await store.compact(progress=lambda n, total: records.append((n, total)))
        assert report.before.used >= report.after.used and report.after.holes <= report.before.holes
        assert records == sorted(records)
        assert await all_of(store) == before
        world.start()
        commit = asyncio.ensure_future(store.commit(world.take()))
        await store.compact()
        await commit
        assert await store.verify() == []
        await store.close()
