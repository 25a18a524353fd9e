"""What every store knows of model calls that have left, after its process died."""

from __future__ import annotations

from pathlib import Path

from retinue.core.events import Opened
from retinue.core.values import Limits
from tests.contracts.world import Opening, World, run_async


class Sent(Opening):
    @run_async
    async def test_a_crash_leaves_it_known_which_calls_have_left(self, tmp_path: Path) -> None:
        store, world = await self.opened(tmp_path), World()
        await store.load()
        world.apply("", Opened(epoch=1, limits=Limits()))
        rest, waiting, ended = (world.start(task) for task in ("one", "two", "three"))
        await store.commit(world.take())
        for run in (rest, ended):
            store.sent.marker(run, 1)(True)
        store.sent.drop(ended)
        heir = store.survivor()
        await heir.open()
        epochs = {row.spec.id: row.run.epoch for row in (await heir.load()).open}
        assert not heir.sent.is_unsent(rest, epochs[rest], 1)
        assert heir.sent.is_unsent(rest, epochs[rest], 2)
        assert heir.sent.is_unsent(waiting, epochs[waiting], 1)
        await heir.close()
